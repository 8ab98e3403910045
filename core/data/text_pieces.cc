#include "core/data/text_pieces.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::data {
namespace {

// White space is spelled out as Unicode's White_Space property: PCRE2's own \s counts U+180E in.
constexpr char kSpace[] = R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// `pattern` for PCRE2: \s and \S within and without brackets.
std::string WithUnicodeSpace(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const char escaped = c == '\\' && i + 1 < pattern.size() ? pattern[++i] : '\0';
    if (escaped == 's') {
      out += in_class ? std::string(kSpace) : absl::StrCat("[", kSpace, "]");
    } else if (escaped == 'S') {
      out += absl::StrCat("[^", kSpace, "]");
    } else if (escaped != '\0') {
      out += {c, escaped};
    } else {
      in_class = c == '[' || (in_class && c != ']');
      out += c;
    }
  }
  return out;
}

std::string Message(int pcre2_error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(pcre2_error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

template <typename T, void (*kFree)(T*)>
struct Deleter {
  void operator()(T* pointer) const { kFree(pointer); }
};
using Code = std::unique_ptr<pcre2_code, Deleter<pcre2_code, pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data, pcre2_match_data_free>>;

absl::StatusOr<Code> Compile(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.c_str()), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error,
                          &at, nullptr));
  if (!code) return absl::InternalError(absl::StrCat("split pattern: ", Message(error), " at ", at));
  return code;
}

}  // namespace

absl::Status CheckUtf8(std::string_view text) {
  static const Code* const code = new Code(Compile("").value());
  const MatchData match(pcre2_match_data_create_from_pattern(code->get(), nullptr));
  const int result =
      pcre2_match(code->get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, match.get(), nullptr);
  if (result >= 0) return absl::OkStatus();
  return FieldError("training.dataset_path", absl::StrCat("byte ", pcre2_get_startchar(match.get())),
                    absl::StrCat("not UTF-8 (", Message(result), "); convert the text, or use the byte tokenizer"));
}

// No character below U+0300, whose first byte is 0xcc, is joined with another or comes of one.
bool MayNotBeComposed(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char byte) { return static_cast<unsigned char>(byte) >= 0xcc; });
}

absl::StatusOr<std::string> Compose(std::string_view text) {
  std::string out;
  // Line by line, which takes less memory: nothing is joined with a line's end.
  while (!text.empty()) {
    const size_t size = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, size);
    text.remove_prefix(size);
    if (!MayNotBeComposed(line)) {
      out += line;
      continue;
    }
    utf8proc_uint8_t* composed = nullptr;
    const auto* const bytes = reinterpret_cast<const utf8proc_uint8_t*>(line.data());
    const utf8proc_ssize_t length = utf8proc_map(bytes, static_cast<utf8proc_ssize_t>(line.size()), &composed,
                                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (length < 0) return absl::InternalError(absl::StrCat("normalizing the text: ", utf8proc_errmsg(length)));
    out.append(reinterpret_cast<const char*>(composed), static_cast<size_t>(length));
    std::free(composed);
  }
  return out;
}

struct Splitter::Pattern {
  Code code;
};

Splitter::Splitter(std::unique_ptr<Pattern> pattern) : pattern_(std::move(pattern)) {}
Splitter::Splitter(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

absl::StatusOr<Splitter> Splitter::Create(Vocabulary::Split split) {
  // Any text is one piece of a vocabulary without a split.
  ASSIGN_OR_RETURN(Code code, Compile(split == Vocabulary::Split::kNone ? "(?s).+" : WithUnicodeSpace(SplitPattern(split))));
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // where there is none, matching is only slower
  return Splitter(std::make_unique<Pattern>(Pattern{std::move(code)}));
}

absl::Status Splitter::ForEachPiece(std::string_view text, const std::function<absl::Status(std::string_view)>& visit) const {
  const MatchData match(pcre2_match_data_create_from_pattern(pattern_->code.get(), nullptr));
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
  for (size_t at = 0; at < text.size(); at = range[1]) {
    const int result = pcre2_match(pattern_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                   PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (result < 0) return absl::InternalError(absl::StrCat("splitting the text at byte ", at, ": ", Message(result)));
    RETURN_IF_ERROR(visit(text.substr(range[0], range[1] - range[0])));
  }
  return absl::OkStatus();
}

void AddedTokens::Add(std::string_view text, int32_t id) {
  auto& tokens = by_first_byte_[static_cast<unsigned char>(text[0])];
  tokens.emplace_back(text, id);
  std::stable_sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
}

absl::Status AddedTokens::ForEachPart(std::string_view text, const std::function<absl::Status(std::string_view, bool)>& visit,
                                      const std::function<void(int32_t)>& found) const {
  size_t begin = 0, at = 0;
  while (at < text.size()) {
    const auto& tokens = by_first_byte_[static_cast<unsigned char>(text[at])];
    const auto token = std::find_if(tokens.begin(), tokens.end(),
                                    [&](const auto& one) { return text.substr(at, one.first.size()) == one.first; });
    if (token == tokens.end()) {
      ++at;
      continue;
    }
    if (begin < at) RETURN_IF_ERROR(visit(text.substr(begin, at - begin), begin == 0));
    found(token->second);
    begin = at += token->first.size();
  }
  return begin < text.size() ? visit(text.substr(begin), begin == 0) : absl::OkStatus();
}

}  // namespace legoai::data
