// The servers of which one leads, as agents and clients are given them: "a:7420,b:7420". Which to ask next is the leader that a
// server named; where that one does not answer, the server that named it, which sees soon who leads instead; else the next of
// the list.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai {

// Not thread-safe.
class ServerList {
 public:
  // HOST:PORT or unix:PATH, with commas between them. `field` is what they were given as, for errors: InvalidArgument.
  static absl::StatusOr<ServerList> Parse(std::string_view field, std::string_view text);

  const std::string& current() const { return named_.empty() ? servers_[next_] : named_; }
  bool has_others() const { return servers_.size() > 1; }
  const std::vector<std::string>& all() const { return servers_; }
  const std::string& text() const { return text_; }  // as it was given

  // The current one did not do, with this status. True: it named the leader, which may be asked at once; false: wait a little.
  bool MoveOn(const absl::Status& why);

 private:
  ServerList(std::string text, std::vector<std::string> servers) : text_(std::move(text)), servers_(std::move(servers)) {}

  std::string text_;
  std::vector<std::string> servers_;
  size_t next_ = 0;
  std::string named_;   // as the leader, by a server of the list; empty: none
  std::string silent_;  // the last that did not answer, until it is named once
  int returns_ = 0;     // to the server of the list that named one which did not do
};

}  // namespace legoai
