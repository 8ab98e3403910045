#include "proto/not_leader.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "proto/text.h"

namespace legoai {
namespace {

constexpr char kTypeUrl[] = "type.googleapis.com/legoai.v1.NotLeader";

}  // namespace

absl::Status NotLeaderError(std::string_view leader_address, int64_t term) {
  v1::NotLeader leader;
  leader.set_leader_address(Printable(leader_address));
  leader.set_term(term);
  const std::string text = leader_address.empty()
                               ? "no server leads just now, another takes over within seconds: try again"
                               : absl::StrCat("this server does not lead, ask the one that does: ", leader.leader_address());
  absl::Status status = absl::UnavailableError(text);
  status.SetPayload(kTypeUrl, absl::Cord(leader.SerializeAsString()));
  return status;
}

std::optional<v1::NotLeader> GetNotLeader(const absl::Status& status) {
  const auto payload = status.GetPayload(kTypeUrl);
  v1::NotLeader leader;
  if (!payload || !leader.ParseFromString(std::string(*payload))) return std::nullopt;
  return leader;
}

}  // namespace legoai
