#include "server/metrics/measured_store.h"

#include <chrono>

namespace legoai::server {

absl::Status MeasuredStore::Write(const std::function<absl::Status(store::Transaction&)>& work) {
  const auto begun = std::chrono::steady_clock::now();
  const absl::Status status = store_->Write(work);
  metrics_->StoreWrite(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
  return status;
}

}  // namespace legoai::server
