#include "proto/errors.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai {
namespace {

constexpr char kTypeUrl[] = "type.googleapis.com/legoai.v1.FieldViolation";

constexpr size_t kShown = 200;

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

absl::Status AllFaults(const std::vector<absl::Status>& faults) {
  if (faults.size() < 2) return faults.empty() ? absl::OkStatus() : faults.front();
  std::string text = absl::StrCat(faults.size() < kMostFaults ? "" : "at least ", faults.size(), " faults:");
  for (const absl::Status& fault : faults) absl::StrAppend(&text, "\n  ", fault.message());
  absl::Status all(faults.front().code(), text);
  faults.front().ForEachPayload([&](auto url, const absl::Cord& payload) { all.SetPayload(url, payload); });
  return all;
}

absl::Status CheckPrintable(std::string_view field, std::string_view value) {
  if (IsPrintable(value)) return absl::OkStatus();
  return FieldError(field, value.substr(0, kShown), "must not have control characters");
}

absl::Status CheckArguments(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    RETURN_IF_ERROR(CheckPrintable("argument", word));
  }
  return absl::OkStatus();
}

}  // namespace legoai
