#include "proto/printable.h"

#include "proto/errors.h"
#include "proto/status.h"

namespace legoai {
namespace {

constexpr size_t kShown = 200;

}  // namespace

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
