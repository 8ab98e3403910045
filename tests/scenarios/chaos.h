// Rounds of random kills, stops and drains of a real service, of spoiled checkpoints and full disks (disk_harm.h), while clients
// submit, cancel, with saving and without, and retry; after each round the server is
// killed and the rules (checker.h) are checked over the store that it left. In the end everything is started again, and every job
// must come to its end. The seed fixes what is drawn, not the times at which processes come to it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace legoai::scenarios {

struct ChaosOptions {
  uint32_t seed = 1;
  int rounds = 10;
  // Over one store, which is PostgreSQL's where there are several: then servers are stopped at random too, and what another takes
  // to lead is told.
  int servers = 1;
  double round_seconds = 8;  // of each, from the start of the server on; the last answers and the check come on top
  std::function<bool()> stop = [] { return false; };  // asked often; then everything is killed, and no more is checked
  std::function<void(const std::string&)> say = [](const std::string&) {};  // a line for each round, and the summary
};

// The rules that were broken, and what the service said last; empty: none. Blocks. One at a time in a process.
std::vector<std::string> RunChaos(const ChaosOptions& options);

}  // namespace legoai::scenarios
