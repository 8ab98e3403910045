#include "worker/comm/overdue_calls.h"

#include <utility>

namespace legoai::comm {

void OverdueCalls::Add(const char* what, std::unique_ptr<StreamMark> begun, std::unique_ptr<StreamMark> done) {
  if (begun == nullptr || done == nullptr) return;
  ForgetDone();  // or a step's calls would add up until somebody asks
  calls_.push_back({what, std::move(begun), std::move(done), std::nullopt});
}

// From the front: of calls on two streams a later one may end first, and goes with the other.
void OverdueCalls::ForgetDone() {
  while (!calls_.empty() && calls_.front().done->Passed()) calls_.pop_front();
}

const char* OverdueCalls::Overdue(Clock::time_point now) {
  ForgetDone();
  for (Call& call : calls_) {
    if (!call.begun->Passed() || call.done->Passed()) continue;
    if (!call.seen) call.seen = now;
    if (now - *call.seen >= limit_) return call.what;
  }
  return nullptr;
}

}  // namespace legoai::comm
