#include "proto/toml/scan.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace legoai {
namespace {

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// Goes through the text by strings, comments, brackets and points, and knows at each place how deep it is, and in which key.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool Done() const { return at_ >= text_.size(); }
  size_t at() const { return at_; }
  int64_t line() const { return line_; }
  // Tables and lists that lie in each other here.
  int64_t Depth() const { return header_depth_ + inside_ + points_; }
  std::string Key() const { return header_.empty() ? key_ : header_ + "." + key_; }

  void Step() {
    const char c = text_[at_];
    const bool line_start = line_start_;
    if (c != ' ' && c != '\t') line_start_ = false;
    switch (c) {
      case '"':
      case '\'': return SkipString(c);
      case '#': at_ = std::min(text_.find('\n', at_), text_.size()); return;
      case '\n': EndLine(); break;
      case '.': ++points_; break;
      case ',': points_ = 0; break;
      case '=':
        if (open_.empty()) key_ = Trim(text_.substr(statement_, at_ - statement_));
        break;
      case '[':
      case '{': line_start&& c == '[' && open_.empty() ? BeginHeader() : Open(); break;
      case ']':
      case '}': in_header_ ? EndHeader() : Close(); break;
      default: break;
    }
    ++at_;
  }

 private:
  bool At(std::string_view what) const { return text_.substr(at_, what.size()) == what; }

  void EndLine() {
    ++line_;
    if (!open_.empty()) return;  // a list may have several lines
    line_start_ = true;
    in_header_ = false;
    points_ = 0;
    statement_ = at_ + 1;
  }

  void BeginHeader() {
    in_header_ = true;
    header_depth_ = points_ = 0;
    if (At("[[")) ++at_, ++points_;  // the list and its table
    statement_ = at_ + 1;
  }

  void EndHeader() {
    in_header_ = false;
    header_depth_ = points_ + 1;
    points_ = 0;
    header_ = Trim(text_.substr(statement_, at_ - statement_));
    key_.clear();
  }

  void Open() {
    open_.push_back(points_ + 1);
    inside_ += open_.back();
    points_ = 0;
  }

  void Close() {
    points_ = 0;
    if (open_.empty()) return;
    inside_ -= open_.back();
    open_.pop_back();
  }

  void SkipString(char quote) {
    const std::string three(3, quote);
    const bool lines = At(three), escapes = quote == '"';
    at_ += lines ? 3 : 1;
    while (!Done() && !(lines ? At(three) : text_[at_] == quote || text_[at_] == '\n')) {
      if (text_[at_] == '\n') ++line_;
      at_ += escapes && text_[at_] == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] != '\n' ? 2 : 1;
    }
    if (!lines) {
      if (!Done() && text_[at_] == quote) ++at_;
      return;
    }
    at_ += 3;
    for (int own = 0; own < 2 && !Done() && text_[at_] == quote; ++own) ++at_;  // quotes that are the string's last characters
  }

  std::string_view text_;
  size_t at_ = 0, statement_ = 0;
  int64_t line_ = 1;
  int64_t header_depth_ = 0, inside_ = 0, points_ = 0;
  bool line_start_ = true, in_header_ = false;
  std::vector<int64_t> open_;  // what each open bracket and its key add
  std::string header_, key_;
};

// Bytes before the character that has this line and column.
size_t OffsetOf(std::string_view text, int64_t line, int64_t column) {
  size_t at = 0;
  for (; line > 1 && at < text.size(); ++at) line -= text[at] == '\n';
  while (at < text.size() && column > 1) {
    ++at;
    while (at < text.size() && (text[at] & 0xc0) == 0x80) ++at;
    --column;
  }
  return at;
}

}  // namespace

std::optional<int64_t> FindDeepNesting(std::string_view text, int most) {
  Scanner scanner(text);
  while (!scanner.Done()) {
    scanner.Step();
    if (scanner.Depth() > most) return scanner.line();
  }
  return std::nullopt;
}

TomlPlace FindTomlPlace(std::string_view text, int64_t line, int64_t column) {
  const size_t end = OffsetOf(text, line, column);
  Scanner scanner(text);
  while (!scanner.Done() && scanner.at() < end) scanner.Step();
  size_t begin = std::min(end, text.size());
  const auto of_value = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '+' || c == '-'; };
  while (begin > 0 && of_value(text[begin - 1])) --begin;
  return {scanner.Key(), std::string(text.substr(begin, end - begin))};
}

}  // namespace legoai
