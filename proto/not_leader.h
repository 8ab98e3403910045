// What a server says that does not lead: a Status that also carries who does, as far as it knows. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "proto/legoai/v1/control_plane.pb.h"

namespace legoai {

// Unavailable with a NotLeader. `leader_address`: HOST:PORT; empty: nobody leads that this server knows of.
absl::Status NotLeaderError(std::string_view leader_address, int64_t term);

// The NotLeader that a status carries; nothing if it carries none.
std::optional<v1::NotLeader> GetNotLeader(const absl::Status& status);

// What agents and servers say to each other, by number. It grows with each release in which one would not understand the other as
// meant; a server understands agents of the number before, too, so that builds can be replaced one after the other.
inline constexpr int64_t kAgentProtocol = 1;

}  // namespace legoai
