// Rules of checkpoints that hold whatever was killed: over what the store says was committed and what lies on the disk. Written
// apart from the service, as checker.h. Each function gives the rules that are broken; none: empty.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/scenarios/checker.h"

namespace legoai::scenarios {

// Checkpoints that somebody has spoiled, "DIRECTORY/step-N", and when: microseconds UTC.
using Spoiled = std::map<std::string, int64_t>;

// Of the store alone: steps are committed in order, each under the epoch of the attempt that was under way, and an attempt goes
// on from the last step that was committed before it, a retry without one from that of the job that it tries again. What had been
// found damaged by then does not count: its step, and those before it, may be committed anew.
std::vector<std::string> CheckCommits(const JobHistory& history);

// Attempts that were stopped on request. What one says it saved is its last step, and committed; the next one begins there, so
// that no step is lost and none is done twice, unless the checkpoint was found damaged. A job that was moved has lost nothing:
// restarts are counted where an attempt was lost, and nowhere else.
std::vector<std::string> CheckStops(const JobHistory& history);

// What must be on the disk: of the newest epoch that has committed some the last `keep_latest` (0: all), and of each before it
// as long as no later one has committed as many; all others that are listed, unless they were removed a moment ago. Every byte of
// them is read, and they have the digest that was committed and no sample left out or seen twice. The last of an epoch may lie
// prepared beside their places, in a row: their verdicts came when the trainers were no more, and whoever goes on from them
// finishes them. One that is `spoiled` need not load; then nobody may have gone on from it. Nothing else is called damaged;
// without `spoiled` nobody knows what was, and whatever is called damaged passes. `scratch` is a folder for the check's own use.
std::vector<std::string> CheckCheckpoints(const JobHistory& history, int64_t keep_latest, const std::string& scratch,
                                          const Spoiled* spoiled = nullptr);

}  // namespace legoai::scenarios
