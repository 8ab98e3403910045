#include "proto/server_list.h"

#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/errors.h"
#include "proto/not_leader.h"

namespace legoai {
namespace {

// That a server of the list is asked once more because the leader that it named did not do.
constexpr int kMostReturns = 2;

bool IsAddress(const std::string& address) {
  if (absl::StartsWith(address, "unix:")) return address.size() > 5;
  const size_t colon = address.rfind(':');
  int port = 0;
  return colon != std::string::npos && colon > 0 && absl::SimpleAtoi(address.substr(colon + 1), &port) && port >= 1 &&
         port <= 65535 && address.find_first_of("/ \t") == std::string::npos;
}

}  // namespace

absl::StatusOr<ServerList> ServerList::Parse(std::string_view field, std::string_view text) {
  const std::vector<std::string> servers = absl::StrSplit(std::string(text), ',');
  std::set<std::string> seen;
  for (const std::string& server : servers) {
    if (!IsAddress(server))
      return FieldError(field, text, "must be HOST:PORT, as in 127.0.0.1:7420, or several with commas between them");
    if (!seen.insert(server).second) return FieldError(field, text, absl::StrCat("names ", server, " twice: name it once"));
  }
  return ServerList(std::string(text), servers);
}

bool ServerList::MoveOn(const absl::Status& why) {
  const auto leader = GetNotLeader(why);
  const std::string asked = current();
  const std::string leads = leader && named_.empty() ? leader->leader_address() : "";
  if (!leads.empty() && leads != asked) {
    // It was asked just now, in vain: whoever named it may know better in a moment.
    if (leads == std::exchange(silent_, "")) return false;
    named_ = leads;
    return true;
  }
  if (!leader) silent_ = asked;
  const bool was_named = !std::exchange(named_, "").empty();
  if (was_named && ++returns_ < kMostReturns) return false;
  returns_ = 0;
  next_ = (next_ + 1) % servers_.size();
  return false;
}

}  // namespace legoai
