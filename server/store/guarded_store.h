// What every back end does around the function of a transaction: no calls of the store from within, a few tries of what answers
// Aborted, no write once damage was met.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "core/process/mutex.h"
#include "server/store/store.h"

namespace legoai::store {

// The first damage that any connection met. Thread-safe.
class DamageLatch {
 public:
  // `tell` is called once, on the thread that met it; may be null.
  explicit DamageLatch(std::function<void(const absl::Status&)> tell) : tell_(std::move(tell)) {}

  void Set(const absl::Status& damage);
  absl::Status Get();

 private:
  const std::function<void(const absl::Status&)> tell_;
  Mutex mutex_;
  absl::Status damage_ ABSL_GUARDED_BY(mutex_);
};

// Thread-safe.
class GuardedStore : public Store {
 public:
  using WriteWork = std::function<absl::Status(Transaction&)>;
  using ReadWork = std::function<absl::Status(ReadTransaction&)>;

  explicit GuardedStore(std::shared_ptr<DamageLatch> damage) : damage_(std::move(damage)) {}

  absl::Status Write(const WriteWork& work) final;
  absl::Status Read(const ReadWork& work) final;

 private:
  // As Write() and Read() of the contract, but for what stands above.
  virtual absl::Status WriteOnce(const WriteWork& work) = 0;
  virtual absl::Status ReadOnce(const ReadWork& work) = 0;

  const std::shared_ptr<DamageLatch> damage_;
};

}  // namespace legoai::store
