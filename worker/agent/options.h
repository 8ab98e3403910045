// The options of an agent.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/other_user.h"
#include "proto/channel.h"
#include "proto/legoai/v1/worker.pb.h"

namespace legoai::agent {

struct AgentOptions {
  std::string server;                                   // "127.0.0.1:7420", or several with commas (proto/server_list.h)
  std::string token_file;                               // of the token to call it with, read for every connection; empty: none
  ChannelSecurity security;                             // how it is called, without the token
  v1::Worker worker;                                    // sent in Hello; `instance` names this process
  std::string alone_reason;                             // why it has no gang_address, for the log; empty: it has, or wants none
  // Looks once more for an address of it, before each connection as long as there is none; null: it is not to be looked for.
  std::function<absl::StatusOr<std::string>()> find_gang_address;
  std::string device_reason;                            // why its slots are GPUs or processors, for the log
  std::string runs;                                     // absolute and plain; jobs' folders go there (epoch_directory.h)
  std::vector<std::string> data_roots;                  // folders from which jobs may read (core/process/data_roots.h)
  std::vector<std::string> checkpoint_roots;            // where they may save (core/process/checkpoint_roots.h); empty: anywhere
  std::string trainer;                                  // path of legoai-trainer
  std::optional<launch::OtherUser> trainer_user;        // as whom it runs; unset: as this process
  int64_t trainer_memory_bytes = 0;                     // that each rank may take for itself (ChildSpec); 0: no limit
  int64_t telemetry_bytes = int64_t{64} << 20;          // of metrics and log lines, buffered while the server is away
  absl::Duration first_wait = absl::Milliseconds(100);  // before the second attempt to connect; doubles
  absl::Duration longest_wait = absl::Seconds(5);
  absl::Duration hello_timeout = absl::Seconds(20);     // for the server's welcome
  absl::Duration stop_grace = absl::Seconds(60);        // for trainers to save and stop when the agent is stopped
  bool check = true;                                    // the machine, before its first lease (machine_checks.h)
  absl::Duration check_limit = absl::Minutes(2);        // of each part of a check
  absl::Duration check_again = absl::Minutes(5);        // between checks as long as the disk fails them
  absl::Duration gang_folder_wait = absl::Seconds(90);  // for the first worker's note (gang_folder.h)
};

}  // namespace legoai::agent
