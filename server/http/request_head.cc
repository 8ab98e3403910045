#include "server/http/request_head.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/http/request_guard.h"

namespace legoai::server {
namespace {

constexpr size_t kLongestQuoted = 200;    // of what a client wrote
constexpr size_t kMostLengthDigits = 18;  // of an int64

struct Head {
  std::string_view method, target, version;
  std::vector<std::string_view> hosts, lengths, encodings;  // values, without space around them
};

std::string Quote(std::string_view text) { return absl::CHexEscape(std::string(text.substr(0, kLongestQuoted))); }

absl::Status Refused(std::string_view field, std::string_view value, std::string_view remedy) {
  return FieldError(field, Quote(value), remedy);
}

bool IsSame(std::string_view a, std::string_view b) { return absl::EqualsIgnoreCase(std::string(a), std::string(b)); }

std::string_view Strip(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

bool HasControl(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; });
}

absl::Status ReadRequestLine(std::string_view line, Head* head) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last)
    return Refused("request", line, "cannot be read: it must be HTTP/1.1, METHOD TARGET HTTP/1.1");
  head->method = line.substr(0, first);
  head->target = line.substr(first + 1, last - first - 1);
  head->version = line.substr(last + 1);
  if (!IsToken(head->method) || head->target.empty() || head->target.find(' ') != std::string_view::npos || HasControl(line) ||
      (head->version != "HTTP/1.1" && head->version != "HTTP/1.0")) {
    return Refused("request", line, "cannot be read: it must be HTTP/1.1, METHOD TARGET HTTP/1.1");
  }
  return absl::OkStatus();
}

absl::Status ReadHeader(std::string_view line, Head* head) {
  if (line[0] == ' ' || line[0] == '\t')
    return Refused("request", line, "goes on from the line before: write a header on one line");
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon)))
    return Refused("request", line, "is no header: it must be NAME: VALUE, without space before the colon");
  const std::string_view name = line.substr(0, colon), value = Strip(line.substr(colon + 1));
  if (HasControl(value)) return Refused(name, value, "has control characters: send it without them");
  if (IsSame(name, "Host")) head->hosts.push_back(value);
  if (IsSame(name, "Content-Length")) head->lengths.push_back(value);
  if (IsSame(name, "Transfer-Encoding")) head->encodings.push_back(value);
  return absl::OkStatus();
}

absl::Status Read(std::string_view text, Head* head) {
  for (bool first = true; !text.empty(); first = false) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() && !first) break;
    RETURN_IF_ERROR(first ? ReadRequestLine(line, head) : ReadHeader(line, head));
  }
  return absl::OkStatus();
}

absl::Status CheckHost(const Head& head) {
  if (head.hosts.size() > 1) return Refused("Host", head.hosts[1], "is there twice: send one");
  if (head.hosts.empty()) {
    if (head.version == "HTTP/1.0") return absl::OkStatus();
    return Refused("Host", "", "is missing: HTTP/1.1 needs it, as NAME or NAME:PORT");
  }
  const std::string_view host = head.hosts[0];
  if (!HostName(host)) return Refused("Host", host, "must be NAME or NAME:PORT, such as localhost:7421 or [::1]:7421");
  // http://NAME/PATH as a target counts more than Host (RFC 9112, 3.2.2).
  const size_t slashes = head.target.find("://");
  if (slashes == std::string_view::npos || head.target[0] == '/') return absl::OkStatus();
  const std::string_view authority = head.target.substr(slashes + 3);
  if (authority.substr(0, authority.find_first_of("/?#")) == host) return absl::OkStatus();
  return Refused("Host", host,
                 absl::StrCat("is not the host of the target ", Quote(head.target), ": send the path alone as target"));
}

absl::Status CheckFraming(const Head& head) {
  const bool is_chunked = !head.encodings.empty();
  if (is_chunked && (head.encodings.size() > 1 || !IsSame(head.encodings[0], "chunked") || head.version == "HTTP/1.0"))
    return Refused("Transfer-Encoding", head.encodings.back(), "must be chunked, once, and in HTTP/1.1");
  if (is_chunked && !head.lengths.empty())
    return Refused("Content-Length", head.lengths[0], "stands beside Transfer-Encoding: send one of them");
  for (const std::string_view length : head.lengths) {
    const bool is_number = !length.empty() && length.find_first_not_of("0123456789") == std::string_view::npos;
    if (!is_number || length.size() > kMostLengthDigits)
      return Refused("Content-Length", length, "must be the number of bytes of the body");
    if (length != head.lengths[0])
      return Refused("Content-Length", length,
                     absl::StrCat("contradicts ", Quote(head.lengths[0]), ", which it is too: send one"));
  }
  const bool has_body = is_chunked || (!head.lengths.empty() && head.lengths[0].find_first_not_of('0') != std::string_view::npos);
  const bool takes_body = head.method == "POST" || head.method == "PUT" || head.method == "PATCH";
  if (has_body && !takes_body)
    return Refused(is_chunked ? "Transfer-Encoding" : "Content-Length", is_chunked ? head.encodings[0] : head.lengths[0],
                   absl::StrCat("announces a body, and ", Quote(head.method), " has none here: send it without"));
  return absl::OkStatus();
}

}  // namespace

size_t EndOfHead(std::string_view bytes) {
  for (size_t at = bytes.find('\n'); at != std::string_view::npos; at = bytes.find('\n', at + 1)) {
    const std::string_view rest = bytes.substr(at + 1);
    if (rest.starts_with('\n')) return at + 2;
    if (rest.starts_with("\r\n")) return at + 3;
  }
  return std::string_view::npos;
}

absl::Status CheckRequestHead(std::string_view text) {
  Head head;
  RETURN_IF_ERROR(Read(text, &head));
  RETURN_IF_ERROR(CheckFraming(head));
  return CheckHost(head);
}

}  // namespace legoai::server
