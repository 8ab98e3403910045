// Carries an absl::Status through code where only exceptions pass: operators, autograd, interceptors. Thrown by operators and
// turned back into the same Status at the end of the trainer's step.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "absl/status/status.h"

namespace legoai::comm {

class StatusError : public c10::Error {
 public:
  explicit StatusError(absl::Status status)
      : c10::Error({"operator", __FILE__, __LINE__}, std::string(status.message())), status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

inline void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) throw StatusError(status);
}

// Runs `step`, which returns an absl::Status, and converts exceptions to one.
template <class F>
absl::Status CatchStatus(F&& step) {
  try {
    return step();
  } catch (const StatusError& e) {
    return e.status();
  } catch (const c10::Error& e) {
    return absl::InternalError(e.what_without_backtrace());
  } catch (const std::exception& e) {
    return absl::InternalError(e.what());
  }
}

}  // namespace legoai::comm
