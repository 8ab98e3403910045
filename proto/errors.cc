#include "proto/errors.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "proto/utf8.h"

namespace legoai {
namespace {

constexpr char kTypeUrl[] = "type.googleapis.com/legoai.v1.FieldViolation";

}  // namespace

absl::Status FieldError(std::string_view field, std::string_view value, std::string_view remedy, absl::StatusCode code) {
  if (code == absl::StatusCode::kOk) code = absl::StatusCode::kInvalidArgument;
  v1::FieldViolation violation;
  violation.set_field(Printable(field));
  violation.set_value(Printable(value));
  violation.set_remedy(Printable(remedy, Lines::kKeep));
  std::string message = violation.field();
  if (!value.empty()) absl::StrAppend(&message, " = ", violation.value());
  absl::Status status(code, absl::StrCat(message, ": ", violation.remedy()));
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
  absl::Status annotated(status.code(), absl::StrCat(Printable(context, Lines::kKeep), ": ", status.message()));
  status.ForEachPayload([&](auto url, const absl::Cord& payload) { annotated.SetPayload(url, payload); });
  return annotated;
}

}  // namespace legoai
