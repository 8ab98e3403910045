#include "server/rpc/list_query.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/checkpoint/files.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

constexpr size_t kMostBytes = 4000;  // of a filter
constexpr char kActive[] = "active";

absl::Status Wrong(std::string_view what, std::string_view remedy) { return FieldError("filter", what.substr(0, 200), remedy); }

// Cuts a filter into words, operators and texts.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) { SkipSpace(); }
  bool AtEnd() const { return at_ == text_.size(); }
  std::string_view Rest() const { return text_.substr(at_); }

  std::string Word() {
    const size_t begin = at_;
    while (at_ < text_.size() && (absl::ascii_isalnum(text_[at_]) || std::string_view("_-.").find(text_[at_]) != kNone)) ++at_;
    return Take(begin);
  }
  std::string Operator() {
    const size_t begin = at_;
    while (at_ < text_.size() && std::string_view("=!<>:").find(text_[at_]) != kNone) ++at_;
    return Take(begin);
  }
  // A word, or what stands in double quotes.
  absl::StatusOr<std::string> Value() {
    if (AtEnd() || text_[at_] != '"') {
      const std::string_view rest = Rest();
      std::string word = Word();
      if (word.empty()) return Wrong(rest, "a value is missing here: a word, a number, or text in double quotes");
      return word;
    }
    const std::string_view begin = Rest();
    std::string value;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      value += text_[at_];
    }
    if (AtEnd()) return Wrong(begin, "a double quote is not closed");
    ++at_;
    SkipSpace();
    return value;
  }

 private:
  static constexpr size_t kNone = std::string_view::npos;
  std::string Take(size_t begin) {
    std::string taken(text_.substr(begin, at_ - begin));
    SkipSpace();
    return taken;
  }
  void SkipSpace() {
    while (at_ < text_.size() && absl::ascii_isspace(text_[at_])) ++at_;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

struct FieldRule {
  std::string name;
  std::set<std::string> operators;
};

absl::Status CheckTerm(const FilterTerm& term, const std::vector<FieldRule>& rules) {
  const auto rule = std::find_if(rules.begin(), rules.end(), [&](const FieldRule& r) { return r.name == term.field; });
  if (rule == rules.end()) {
    return Wrong(term.field,
                 absl::StrCat("is no field to filter by; there are ",
                              absl::StrJoin(rules, ", ", [](std::string* out, const FieldRule& r) { *out += r.name; })));
  }
  if (rule->operators.count(term.op) > 0) return absl::OkStatus();
  return Wrong(absl::StrCat(term.field, " ", term.op),
               absl::StrCat("operators of ", term.field, " are ", absl::StrJoin(rule->operators, " ")));
}

absl::Status CheckTerms(const std::vector<FilterTerm>& terms, const std::vector<FieldRule>& rules) {
  for (const FilterTerm& term : terms) {
    RETURN_IF_ERROR(CheckTerm(term, rules));
  }
  return absl::OkStatus();
}

template <typename Enum>
absl::Status WrongState(const FilterTerm& term, const char* also = "") {
  const auto* type = google::protobuf::GetEnumDescriptor<Enum>();
  return Wrong(absl::StrCat("state ", term.op, " ", term.value),
               absl::StrCat("states are ", absl::StrJoin(EnumTexts(type), ", "), also));
}

// The states that `term` leaves of `states`.
absl::StatusOr<std::set<v1::JobState>> Narrow(const std::set<v1::JobState>& states, const FilterTerm& term) {
  std::set<v1::JobState> named;
  if (term.value == kActive) {
    for (v1::JobState state : ActiveStates()) named.insert(state);
  } else {
    const auto state = EnumFromText<v1::JobState>(term.value);
    if (!state) return WrongState<v1::JobState>(term, ", and active for all that are not final");
    named.insert(*state);
  }
  std::set<v1::JobState> left;
  for (v1::JobState state : states) {
    if ((named.count(state) > 0) == (term.op == "=")) left.insert(state);
  }
  return left;
}

// Times are whole numbers, so `> t` is `>= t + 1`.
absl::Status NarrowTime(const FilterTerm& term, store::JobQuery* query, bool* nothing) {
  int64_t time = 0;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() - 1;
  if (!absl::SimpleAtoi(term.value, &time) || time < 0 || time > kMost)
    return Wrong(absl::StrCat("create_time_us ", term.op, " ", term.value), "must be microseconds since 1970, a whole number");
  const int64_t after = time + 1;
  if (term.op == ">=" || term.op == ">") query->created_from_us = std::max(query->created_from_us, term.op == ">" ? after : time);
  if (term.op == "<=" || term.op == "<") {
    const int64_t until = term.op == "<=" ? after : time;
    if (until == 0) *nothing = true;
    query->created_until_us = query->created_until_us == 0 ? until : std::min(query->created_until_us, until);
  }
  return absl::OkStatus();
}

constexpr size_t kDigest = 16;  // hexadecimal digits
constexpr size_t kMostToken = 1000;

std::string Digest(std::string_view text) { return checkpoint::Sha256(text).substr(0, kDigest); }

// Lengths keep ("ab", "c") and ("a", "bc") apart.
std::string QueryDigest(std::initializer_list<std::string_view> query) {
  std::string text;
  for (std::string_view part : query) absl::StrAppend(&text, part.size(), ":", std::string(part));
  return Digest(text);
}

}  // namespace

absl::StatusOr<std::vector<FilterTerm>> ParseFilter(std::string_view filter) {
  if (filter.size() > kMostBytes) return Wrong("", absl::StrCat("must have at most ", kMostBytes, " bytes"));
  std::vector<FilterTerm> terms;
  Scanner scanner(filter);
  while (!scanner.AtEnd()) {
    if (!terms.empty()) {
      const std::string rest(scanner.Rest());
      if (scanner.Word() != "AND") return Wrong(rest, "terms are joined by AND; nothing else may be here");
    }
    const std::string rest(scanner.Rest());
    FilterTerm term;
    term.field = scanner.Word();
    if (term.field.empty()) return Wrong(rest, "a field is missing here, as in `state = running`");
    term.op = scanner.Operator();
    static const std::set<std::string> kOperators = {"=", "!=", "<", "<=", ">", ">=", ":"};
    if (kOperators.count(term.op) == 0) return Wrong(rest, "after the field there must be one of = != < <= > >= :");
    ASSIGN_OR_RETURN(auto value, scanner.Value());
    term.value = std::move(value);
    terms.push_back(std::move(term));
  }
  return terms;
}

absl::StatusOr<JobFilter> ParseJobFilter(std::string_view filter) {
  ASSIGN_OR_RETURN(const auto terms, ParseFilter(filter));
  absl::Status status = CheckTerms(
      terms, {{"state", {"=", "!="}}, {"display_name", {":"}}, {"text", {":"}}, {"create_time_us", {"<", "<=", ">", ">="}}});
  if (!status.ok()) return status;
  JobFilter result;
  std::set<v1::JobState> all = {v1::SUCCEEDED, v1::FAILED, v1::CANCELLED};
  for (v1::JobState state : ActiveStates()) all.insert(state);
  std::set<v1::JobState> states = all;
  for (const FilterTerm& term : terms) {
    if (term.field == "state") {
      ASSIGN_OR_RETURN(auto left, Narrow(states, term));
      states = std::move(left);
    } else if (term.field == "display_name" || term.field == "text") {
      std::string& part = term.field == "text" ? result.query.text_contains : result.query.display_name_contains;
      if (!part.empty()) return Wrong(term.field, "may be there once");
      part = term.value;
    } else if (absl::Status status = NarrowTime(term, &result.query, &result.nothing); !status.ok()) {
      return status;
    }
  }
  if (states != all) result.query.states.assign(states.begin(), states.end());
  const bool no_time = result.query.created_until_us > 0 && result.query.created_from_us >= result.query.created_until_us;
  result.nothing = result.nothing || states.empty() || no_time;
  return result;
}

absl::StatusOr<std::vector<FilterTerm>> ParseWorkerFilter(std::string_view filter) {
  auto terms = ParseFilter(filter);
  if (!terms.ok()) return terms.status();
  absl::Status status = CheckTerms(*terms, {{"state", {"=", "!="}}, {"pool", {"=", "!="}}});
  if (!status.ok()) return status;
  for (const FilterTerm& term : *terms) {
    if (term.field == "state" && !EnumFromText<v1::WorkerState>(term.value)) return WrongState<v1::WorkerState>(term);
  }
  return terms;
}

bool Matches(const std::vector<FilterTerm>& terms, const v1::Worker& worker) {
  return std::all_of(terms.begin(), terms.end(), [&](const FilterTerm& term) {
    const std::string value = term.field == "pool" ? worker.pool() : EnumText(worker.state());
    return (value == term.value) == (term.op == "=");
  });
}

std::string MakePageToken(std::initializer_list<std::string_view> query, std::string_view cursor) {
  const std::string body = QueryDigest(query) + std::string(cursor);
  return absl::WebSafeBase64Escape(Digest(body) + body);
}

absl::StatusOr<std::string> ReadPageToken(std::initializer_list<std::string_view> query, std::string_view token) {
  if (token.empty()) return std::string();
  std::string bytes;
  const bool whole = token.size() <= kMostToken && absl::WebSafeBase64Unescape(std::string(token), &bytes) &&
                     bytes.size() > 2 * kDigest && Digest(std::string_view(bytes).substr(kDigest)) == bytes.substr(0, kDigest);
  if (!whole)
    return FieldError("page_token", token.substr(0, 60), "is none that the server gave; leave it empty for the first page");
  if (bytes.substr(kDigest, kDigest) != QueryDigest(query))
    return FieldError("page_token", token.substr(0, 60),
                      "belongs to another query; give the same parent and filter as with the page before, or leave it empty");
  return bytes.substr(2 * kDigest);
}

absl::StatusOr<int64_t> PageSize(int64_t asked, int64_t otherwise) {
  if (asked < 0) return FieldError("page_size", absl::StrCat(asked), "must not be negative");
  return asked == 0 ? otherwise : std::min(asked, kMostPageSize);
}

}  // namespace legoai::server
