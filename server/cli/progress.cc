#include "server/cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/text.h"
#include "server/cli/output.h"

namespace legoai::cli {
namespace {

// A live line that wraps would not be written over.
std::string CutToTerminal(const std::string& text) {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return text;
  return FirstColumns(text, size.ws_col - 1);
}

}  // namespace

std::string BenchmarkText(const v1::SimProgress& progress) {
  const double share = progress.total() > 0 ? static_cast<double>(progress.done()) / static_cast<double>(progress.total()) : 0;
  return absl::StrCat(progress.phase(), ": ", PercentText(share), ", ", SecondsText(progress.elapsed_seconds()), ", about ",
                      SecondsText(progress.remaining_seconds()), " to go");
}

ProgressLine::ProgressLine(absl::Duration pause) : terminal_(isatty(STDERR_FILENO)), pause_(pause) {}

void ProgressLine::Show(const std::string& raw) {
  const std::string text = Printable(raw, Lines::kKeep);
  const absl::Time now = absl::Now();
  if (terminal_) {
    shown_ = CutToTerminal(text);
    std::fprintf(stderr, "\r\033[K%s", shown_.c_str());
    std::fflush(stderr);
  } else if (text == written_) {
    held_back_.clear();
  } else if (now - last_ >= pause_) {
    std::fprintf(stderr, "%s\n", text.c_str());
    last_ = now;
    written_ = text;
    held_back_.clear();
  } else {
    held_back_ = text;
  }
}

void ProgressLine::Note(const std::string& raw) {
  const std::string text = Shown(raw, Stream::kErr);
  if (shown_.empty()) {
    std::fprintf(stderr, "%s\n", text.c_str());
    return;
  }
  std::fprintf(stderr, "\r\033[K%s\n%s", text.c_str(), shown_.c_str());
  std::fflush(stderr);
}

void ProgressLine::Finish() {
  if (!shown_.empty()) std::fprintf(stderr, "\n");
  if (!held_back_.empty()) std::fprintf(stderr, "%s\n", held_back_.c_str());
  shown_.clear();
  held_back_.clear();
}

void ProgressLine::Clear() {
  if (!shown_.empty()) std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_.clear();
  held_back_.clear();
}

double Pace::Observe(int64_t step, double latest, absl::Time now) {
  if (first_step_ < 0 || step < last_step_) first_step_ = step, first_time_ = now;
  last_step_ = step;
  const int64_t passed = step - first_step_;
  return passed > 0 ? absl::ToDoubleSeconds(now - first_time_) / static_cast<double>(passed) : latest;
}

}  // namespace legoai::cli
