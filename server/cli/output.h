// What commands print: aligned tables for people, numbers with units, and trees as JSON or YAML (the result alone goes to
// standard output, everything else to standard error).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/json/reflect.h"
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
// Whether all of it was written: a disk may be full.
bool AllPrinted();

}  // namespace legoai::cli
