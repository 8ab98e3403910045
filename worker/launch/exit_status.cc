#include "worker/launch/exit_status.h"

#include <utility>

#include "core/checkpoint/directory.h"
#include "proto/errors.h"

namespace legoai::launch {
namespace {

absl::Status ExitStatusWithoutDamage(const v1::Exit& exit) {
  if (exit.has_violation()) {
    const v1::FieldViolation& violation = exit.violation();
    return FieldError(violation.field(), violation.value(), violation.remedy(), static_cast<absl::StatusCode>(exit.code()));
  }
  const auto code = exit.code() == 0 ? absl::StatusCode::kUnknown : static_cast<absl::StatusCode>(exit.code());
  return absl::Status(code, exit.message());
}

}  // namespace

v1::Exit MakeExit(v1::Exit::Cause cause, int64_t step, const absl::Status& status) {
  v1::Exit exit;
  exit.set_cause(cause);
  exit.set_step(step);
  exit.set_code(static_cast<int>(status.code()));
  exit.set_message(std::string(status.message()));
  if (auto violation = GetFieldViolation(status)) *exit.mutable_violation() = *std::move(violation);
  if (auto damage = checkpoint::GetDamage(status)) *exit.mutable_damage() = *std::move(damage);
  return exit;
}

absl::Status ExitStatus(const v1::Exit& exit) {
  absl::Status status = ExitStatusWithoutDamage(exit);
  return exit.has_damage() ? checkpoint::WithDamage(std::move(status), exit.damage()) : status;
}

}  // namespace legoai::launch
