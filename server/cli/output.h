// What commands print: aligned tables for people, numbers with units, and trees as JSON or YAML (the result alone goes to
// standard output, everything else to standard error).
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/json/reflect.h"
#include "proto/legoai/v1/sim.pb.h"
#include "proto/text.h"
#include "server/cli/arguments.h"

namespace legoai::cli {

// A filled bar of `share` (0 to 1) of `width` columns.
std::string Bar(double share, size_t width);

// Columns as wide as their widest cell; all but those whose header begins with '<' are right-aligned. Cells are UTF-8.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  void Add(std::vector<std::string> row);
  bool empty() const { return rows_.empty(); }
  std::string Text() const;

 private:
  std::vector<bool> left_;
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

// `tree` in a format that is not the table's.
std::string TreeText(Format format, const Tree& tree);

// Colours, of states and warnings: only where the stream is a terminal that has them (TERM is set and not "dumb") and nobody has
// said NO_COLOR (no-color.org).
enum class Stream { kOut, kErr };
enum class Color { kNone, kRed, kGreen, kYellow, kCyan };
std::string Colored(Color color, const std::string& text, Stream stream = Stream::kOut);

// `text` as the stream may have it: control characters are shown and not obeyed, but for the colours of Colored().
std::string Shown(const std::string& text, Stream stream);

// Columns of a terminal that UTF-8 text takes, a character each and colours none; and its first `columns`, of text without
// colours.
size_t Width(const std::string& text);
std::string FirstColumns(const std::string& text, size_t columns);

// Writes to standard output what Shown() gives.
void Print(const std::string& text);
// One message of many, in `format` (not kTable): a line of JSON, or a document of YAML.
void PrintMessage(Format format, const google::protobuf::Message& message);
// Whether all of it was written: a disk may be full.
bool AllPrinted();

// "replaying the step 7 times: 12 %, 3.2 s, about 24.1 s to go"
std::string BenchmarkText(const v1::SimProgress& progress);

// Progress on standard error: one line that is written over where that is a terminal, an occasional line where it is a file.
// Not thread-safe.
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
  // says itself. A step behind the last one, of another attempt, starts over.
  double Observe(int64_t step, double latest, absl::Time now);
  // The training does not go on: what follows starts over.
  void Forget() { first_step_ = -1; }

 private:
  int64_t first_step_ = -1, last_step_ = -1;
  absl::Time first_time_;
};

}  // namespace legoai::cli
