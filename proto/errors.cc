#include "proto/errors.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace legoai {
namespace {
constexpr char kTypeUrl[] = "type.googleapis.com/legoai.v1.FieldViolation";
}

absl::Status FieldError(std::string_view field, std::string_view value, std::string_view remedy, absl::StatusCode code) {
  if (code == absl::StatusCode::kOk) code = absl::StatusCode::kInvalidArgument;
  std::string message(field);
  if (!value.empty()) message.append(" = ").append(value);
  message.append(": ").append(remedy);
  absl::Status status(code, message);
  v1::FieldViolation violation;
  violation.set_field(std::string(field));
  violation.set_value(std::string(value));
  violation.set_remedy(std::string(remedy));
  status.SetPayload(kTypeUrl, absl::Cord(violation.SerializeAsString()));
  return status;
}

std::optional<v1::FieldViolation> GetFieldViolation(const absl::Status& status) {
  const auto payload = status.GetPayload(kTypeUrl);
  v1::FieldViolation violation;
  if (!payload || !violation.ParseFromString(std::string(*payload))) return std::nullopt;
  return violation;
}

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(std::string(context), ": ", status.message()));
  status.ForEachPayload([&](auto url, const absl::Cord& payload) { annotated.SetPayload(url, payload); });
  return annotated;
}

}  // namespace legoai
