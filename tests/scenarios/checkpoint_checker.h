// Rules of checkpoints that hold whatever was killed: over what the store says was committed and what lies on the disk. Written
// apart from the service, as checker.h. Each function gives the rules that are broken; none: empty.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/scenarios/checker.h"

namespace legoai::scenarios {

// Of the store alone: steps are committed in order, each under the epoch of the attempt that was under way, and an attempt goes
// on from the last step that was committed before it and not known to be damaged then.
std::vector<std::string> CheckCommits(const JobHistory& history);

// What must be on the disk: of the newest epoch that has committed some the last `keep_latest` (0: all), and of each before it
// as long as no later one has committed as many; all others that are listed, unless they were removed a moment ago. Every byte of
// them is read, and they have the digest that was committed and no sample left out or seen twice. The last of an epoch may lie
// prepared beside their places, in a row: their verdicts came when the trainers were no more, and whoever goes on from them
// finishes them. What the service calls damaged need not load. `scratch` is a folder for the check's own use.
std::vector<std::string> CheckCheckpoints(const JobHistory& history, int64_t keep_latest, const std::string& scratch);

}  // namespace legoai::scenarios
