#include "server/store/guarded_store.h"

#include "proto/status.h"

namespace legoai::store {
namespace {

constexpr int kTries = 4;  // of a function that answers Aborted

// The store in which this thread runs a function just now. A function that called it again could wait for itself.
thread_local const void* inside = nullptr;

class Inside {
 public:
  explicit Inside(const void* store) : before_(std::exchange(inside, store)) {}
  ~Inside() { inside = before_; }

 private:
  const void* before_;
};

absl::Status Nested() {
  return absl::FailedPreconditionError("a function that runs in a transaction of the store called the store itself");
}

}  // namespace

void DamageLatch::Set(const absl::Status& damage) {
  {
    const MutexLock lock(mutex_);
    if (!damage_.ok()) return;
    damage_ = damage;
  }
  if (tell_) tell_(damage);
}

absl::Status DamageLatch::Get() {
  const MutexLock lock(mutex_);
  return damage_;
}

absl::Status GuardedStore::Write(const WriteWork& work) {
  if (inside == this) return Nested();
  const WriteWork guarded = [&](Transaction& transaction) {
    RETURN_IF_ERROR(damage_->Get());
    const Inside here(this);
    absl::Status status = work(transaction);
    // What `work` read may be wrong, and it may have passed over that.
    return status.ok() ? damage_->Get() : status;
  };
  absl::Status status = WriteOnce(guarded);
  for (int tries = 1; tries < kTries && absl::IsAborted(status); ++tries) status = WriteOnce(guarded);
  return status;
}

absl::Status GuardedStore::Read(const ReadWork& work) {
  if (inside == this) return Nested();
  const Inside here(this);
  return ReadOnce(work);
}

}  // namespace legoai::store
