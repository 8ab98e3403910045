#include "server/cli/address.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"

namespace legoai::cli {

absl::Status CheckAddress(const std::string& field, const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  const bool legal = colon != std::string::npos && colon > 0 && absl::SimpleAtoi(address.substr(colon + 1), &port) && port >= 1 &&
                     port <= 65535 && address.find_first_of("/ \t") == std::string::npos;
  if (legal || absl::StartsWith(address, "unix:")) return absl::OkStatus();
  return FieldError(field, address, "must be HOST:PORT, as in 127.0.0.1:7420");
}

}  // namespace legoai::cli
