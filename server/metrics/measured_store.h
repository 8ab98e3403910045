// A Store that tells Metrics how long its writes take until they are durable. Thread-safe like the store it passes everything on
// to.
#pragma once

#include "absl/time/clock.h"
#include "server/metrics/registry.h"
#include "server/store/store.h"

namespace legoai::server {

class MeasuredStore : public store::Store {
 public:
  // Owns neither; both must outlive it.
  MeasuredStore(store::Store* store, Metrics* metrics) : store_(store), metrics_(metrics) {}

  absl::Status Write(const std::function<absl::Status(store::Transaction&)>& work) override {
    const absl::Time start = absl::Now();
    absl::Status status = store_->Write(work);
    metrics_->StoreWrite(absl::ToDoubleSeconds(absl::Now() - start));
    return status;
  }
  absl::Status Read(const std::function<absl::Status(store::ReadTransaction&)>& work) override { return store_->Read(work); }
  std::string Backend() const override { return store_->Backend(); }
  int64_t SchemaVersion() const override { return store_->SchemaVersion(); }

 private:
  store::Store* const store_;
  Metrics* const metrics_;
};

}  // namespace legoai::server
