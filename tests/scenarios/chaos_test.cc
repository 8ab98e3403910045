// Ten rounds, six with several servers, split over seeds that stay the same.
#include "tests/scenarios/chaos.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

namespace legoai::scenarios {
namespace {

TEST(ChaosTest, NoRuleIsBrokenWhateverIsKilled) {
  for (const uint32_t seed : {1, 2}) {
    ChaosOptions options;
    options.seed = seed;
    options.rounds = 5;
    options.round_seconds = 5;
    const char* const servers = std::getenv("LEGOAI_TEST_SERVERS");
    if (servers != nullptr) {
      options.servers = std::atoi(servers);
      options.rounds = 3;
      options.round_seconds = 10;  // beyond the leader's lease
    }
    options.say = [](const std::string& line) { std::cout << line << std::endl; };
    options.say("seed " + std::to_string(seed));
    for (const std::string& rule : RunChaos(options)) ADD_FAILURE() << rule;
  }
}

}  // namespace
}  // namespace legoai::scenarios
