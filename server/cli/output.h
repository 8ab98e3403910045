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

// A bar of `width` columns, filled to `share` (0 to 1).
std::string Bar(double share, size_t width);

// Columns are as wide as their widest cell, and right-aligned unless their header begins with '<'. Cells are UTF-8.
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

// Colours for states and warnings, only if the stream is a terminal that supports them (TERM is set and not "dumb") and NO_COLOR
// is not set (no-color.org).
enum class Stream { kOut, kErr };
enum class Color { kNone, kRed, kGreen, kYellow, kCyan };
std::string Colored(Color color, const std::string& text, Stream stream = Stream::kOut);

// `text` with control characters escaped, except for the colours of Colored().
std::string Shown(const std::string& text, Stream stream);

// Terminal columns of UTF-8 text: one per character, none for colours; and its first `columns`, for text without colours.
size_t Width(const std::string& text);
std::string FirstColumns(const std::string& text, size_t columns);

// Writes to standard output what Shown() gives.
void Print(const std::string& text);
// One message of many, in `format` (not kTable): a line of JSON, or a document of YAML.
void PrintMessage(Format format, const google::protobuf::Message& message);
// Whether everything was written; the disk may be full.
bool AllPrinted();

// "replaying the step 7 times: 12 %, 3.2 s, about 24.1 s to go"
std::string BenchmarkText(const v1::SimProgress& progress);

// Progress on standard error: one line that is overwritten on a terminal, occasional lines otherwise. Not thread-safe.
class ProgressLine {
 public:
  // `pause`: the shortest time between two lines if standard error is not a terminal.
  explicit ProgressLine(absl::Duration pause = absl::Seconds(2));
  ~ProgressLine() { Finish(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Replaces the line. If it is not a terminal, an unchanged line is not repeated.
  void Show(const std::string& text);
  // The same for transient states: only on a terminal.
  void ShowPassing(const std::string& text) {
    if (terminal_) Show(text);
  }
  // Prints a permanent line above the live one.
  void Note(const std::string& text);
  // Ends the last line and keeps it.
  void Finish();
  // Removes the live line.
  void Clear();

 private:
  const bool terminal_;
  const absl::Duration pause_;
  absl::Time last_ = absl::InfinitePast();
  std::string shown_;
  std::string written_;    // the last line if not a terminal
  std::string held_back_;  // the last line, if it came too soon after another
};

// The mean step time since watching began: steadier than single steps, some of which save or evaluate. Not thread-safe.
class Pace {
 public:
  // Seconds per step when `step` is done at `now`: the mean over all observed steps, or `latest`, the reported time, for the
  // first one. A step below the last one, of another attempt, starts over.
  double Observe(int64_t step, double latest, absl::Time now);
  // The training was interrupted: starts over.
  void Forget() { first_step_ = -1; }

 private:
  int64_t first_step_ = -1, last_step_ = -1;
  absl::Time first_time_;
};

}  // namespace legoai::cli
