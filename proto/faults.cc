#include "proto/faults.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace legoai {

absl::Status AllFaults(const std::vector<absl::Status>& faults) {
  if (faults.size() < 2) return faults.empty() ? absl::OkStatus() : faults.front();
  std::string text = absl::StrCat(faults.size() < kMostFaults ? "" : "at least ", faults.size(), " faults:");
  for (const absl::Status& fault : faults) absl::StrAppend(&text, "\n  ", fault.message());
  absl::Status all(faults.front().code(), text);
  faults.front().ForEachPayload([&](auto url, const absl::Cord& payload) { all.SetPayload(url, payload); });
  return all;
}

}  // namespace legoai
