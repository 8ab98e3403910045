// tests/scenarios/chaos: prints the seed, a line for each round and a summary. Exit codes: 0 no rule broken, 1 some are (and
// which), 2 the call was wrong.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "tests/scenarios/chaos.h"

ABSL_FLAG(uint32_t, seed, 0, "of all that is drawn; 0: another one each time");
ABSL_FLAG(int32_t, rounds, 10, "of harm, each followed by a check");
ABSL_FLAG(double, round_seconds, 8, "of harm in each round, at most 12");
ABSL_FLAG(int32_t, servers, 1, "over one store; several with --store=postgresql alone");
ABSL_FLAG(std::string, store, "sqlite",
          "the server's store: sqlite, or postgresql, a database of its own, which is ended at random too");

namespace {

volatile sig_atomic_t stopped = 0;

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("tests/scenarios/chaos --seed N --rounds N");
  const auto rest = absl::ParseCommandLine(argc, argv);
  legoai::scenarios::ChaosOptions options;
  options.seed = absl::GetFlag(FLAGS_seed);
  options.rounds = absl::GetFlag(FLAGS_rounds);
  options.round_seconds = absl::GetFlag(FLAGS_round_seconds);
  const std::string store = absl::GetFlag(FLAGS_store);
  if (store != "sqlite" && store != "postgresql") {
    std::fprintf(stderr, "%s: --store must be sqlite or postgresql\n", argv[0]);
    return 2;
  }
  options.servers = absl::GetFlag(FLAGS_servers);
  if (options.servers < 1 || options.servers > 5 || (options.servers > 1 && store != "postgresql")) {
    std::fprintf(stderr, "%s: --servers must be 1 to 5, and more than 1 goes with --store=postgresql\n", argv[0]);
    return 2;
  }
  setenv("LEGOAI_TEST_STORE", store.c_str(), 1);  // server/store/testing/test_store.h
  if (rest.size() > 1 || options.rounds < 1 || !(options.round_seconds > 0 && options.round_seconds <= 12)) {
    std::fprintf(stderr, "%s: --rounds must be at least 1, --round_seconds above 0 and at most 12, and nothing else is taken\n",
                 argv[0]);
    return 2;
  }
  if (options.seed == 0) options.seed = std::random_device()();
  options.say = [](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  };
  // Nothing that was started is left behind.
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, [](int) { stopped = 1; });
  options.stop = [] { return stopped != 0; };
  options.say("seed " + std::to_string(options.seed));
  const auto broken = legoai::scenarios::RunChaos(options);
  for (const std::string& rule : broken) std::fprintf(stderr, "%s\n", rule.c_str());
  return broken.empty() ? 0 : 1;
}
