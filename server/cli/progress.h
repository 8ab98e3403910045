// Progress on standard error: one line that is written over where that is a terminal, a line now and then where it is a file.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "proto/legoai/v1/sim.pb.h"

namespace legoai::cli {

// "replaying the step 7 times: 12 %, 3.2 s, about 24.1 s to go"
std::string BenchmarkText(const v1::SimProgress& progress);

class ProgressLine {
 public:
  // `pause`: the shortest time between two lines where standard error is no terminal.
  explicit ProgressLine(absl::Duration pause = absl::Seconds(2));
  ~ProgressLine() { Finish(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Replaces the line. Where there is none to write over, what was written last is not written again.
  void Show(const std::string& text);
  // The same, of something that passes: only where there is a line to write over.
  void ShowPassing(const std::string& text) {
    if (terminal_) Show(text);
  }
  // A line that stays, above the live one.
  void Note(const std::string& text);
  // Leaves the last line where it is and ends it.
  void Finish();
  // Takes the live line away.
  void Clear();

 private:
  const bool terminal_;
  const absl::Duration pause_;
  absl::Time last_ = absl::InfinitePast();
  std::string shown_;
  std::string written_;    // the last line where standard error is no terminal
  std::string held_back_;  // the last line, if it came too soon after another
};

// How long a step takes as it has been since the training is watched: steadier than single steps, of which one may save or
// evaluate. Not thread-safe.
class Pace {
 public:
  // Seconds per step when `step` is done at `now`: the mean of those that were seen to pass, of the first one `latest`, what it
  // says itself. A step behind the last one, of another attempt, begins anew.
  double Observe(int64_t step, double latest, absl::Time now);
  // The training does not go on: what follows begins anew.
  void Forget() { first_step_ = -1; }

 private:
  int64_t first_step_ = -1, last_step_ = -1;
  absl::Time first_time_;
};

}  // namespace legoai::cli
