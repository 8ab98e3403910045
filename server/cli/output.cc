#include "server/cli/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "proto/text.h"
#include "proto/yaml/yaml.h"

namespace legoai::cli {
namespace {

// Of UTF-8: not a further byte of a character.
bool BeginsCharacter(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

constexpr const char* kColors[] = {"", "\033[31m", "\033[32m", "\033[33m", "\033[36m"};  // as Color has them
constexpr char kReset[] = "\033[0m";

bool Says(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

bool HasColors(Stream stream) {
  if (Says("NO_COLOR") || !Says("TERM") || std::string(std::getenv("TERM")) == "dumb") return false;
  return isatty(stream == Stream::kOut ? STDOUT_FILENO : STDERR_FILENO) != 0;
}

// Bytes of a colour of ours that `text` begins with; 0: of none.
size_t ColorBytes(std::string_view text) {
  if (text.empty() || text[0] != '\033') return 0;
  for (const char* color : kColors) {
    if (*color != '\0' && text.starts_with(color)) return std::strlen(color);
  }
  return text.starts_with(kReset) ? std::strlen(kReset) : 0;
}

// A live line that wraps would not be written over.
std::string CutToTerminal(const std::string& text) {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return text;
  return FirstColumns(text, size.ws_col - 1);
}

}  // namespace

std::string Bar(double share, size_t width) {
  const size_t filled = static_cast<size_t>(std::lround(std::clamp(share, 0.0, 1.0) * width));
  std::string bar;
  for (size_t i = 0; i < width; ++i) bar += i < filled ? "█" : "·";
  return bar;
}

Table::Table(std::vector<std::string> header) : header_(std::move(header)) {
  for (std::string& name : header_) {
    left_.push_back(!name.empty() && name[0] == '<');
    if (left_.back()) name.erase(0, 1);
  }
}

void Table::Add(std::vector<std::string> row) {
  row.resize(header_.size());
  rows_.push_back(std::move(row));
}

std::string Table::Text() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < header_.size(); ++c) {
    widths.push_back(Width(header_[c]));
    for (const auto& row : rows_) widths[c] = std::max(widths[c], Width(row[c]));
  }
  auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t c = 0; c < cells.size(); ++c) {
      const std::string padding(widths[c] - Width(cells[c]), ' ');
      absl::StrAppend(&text, c > 0 ? "  " : "", left_[c] ? cells[c] : padding, left_[c] ? padding : cells[c]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  };
  std::string text = line(header_);
  for (const auto& row : rows_) text += line(row);
  return text;
}

std::string TreeText(Format format, const Tree& tree) { return format == Format::kYaml ? ToYaml(tree) : tree.dump(2) + "\n"; }

std::string Colored(Color color, const std::string& text, Stream stream) {
  if (color == Color::kNone || !HasColors(stream)) return text;
  return absl::StrCat(kColors[static_cast<int>(color)], text, kReset);
}

std::string Shown(const std::string& text, Stream stream) {
  if (!HasColors(stream)) return Printable(text, Lines::kKeep);
  std::string shown;
  for (std::string_view rest = text; !rest.empty();) {
    if (const size_t color = ColorBytes(rest); color > 0) {
      shown += rest.substr(0, color);
      rest.remove_prefix(color);
      continue;
    }
    const size_t end = std::min(rest.find('\033', 1), rest.size());
    shown += Printable(rest.substr(0, end), Lines::kKeep);
    rest.remove_prefix(end);
  }
  return shown;
}

size_t Width(const std::string& text) {
  size_t width = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t color = ColorBytes(rest);
    if (color == 0 && BeginsCharacter(rest[0])) ++width;
    rest.remove_prefix(std::max<size_t>(color, 1));
  }
  return width;
}

std::string FirstColumns(const std::string& text, size_t columns) {
  const auto end = std::find_if(text.begin(), text.end(), [&columns](char c) { return BeginsCharacter(c) && columns-- == 0; });
  return std::string(text.begin(), end);
}

void Print(const std::string& raw) {
  const std::string text = Shown(raw, Stream::kOut);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void PrintMessage(Format format, const google::protobuf::Message& message) {
  const Tree tree = ToTree(message);
  Print(format == Format::kYaml ? "---\n" + TreeText(format, tree) : tree.dump() + "\n");
}

bool AllPrinted() { return std::ferror(stdout) == 0; }

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
