#include "server/http/request_head.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"

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
  if (head.hosts.size() > 1) return Refused("Host", head.hosts[1], "is given twice: send one");
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

constexpr size_t kLongestName = 255;

bool IsPort(std::string_view text) {
  int port = 0;
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos &&
         absl::SimpleAtoi(std::string(text), &port) && port >= 1 && port <= 65535;
}

bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

bool IsV6(const std::string& text) {
  in6_addr address{};
  return inet_pton(AF_INET6, text.c_str(), &address) == 1;
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

std::optional<std::string> HostName(std::string_view host) {
  const bool brackets = host.starts_with('[');
  const size_t end = brackets ? host.find(']') : std::min(host.find(':'), host.size());
  if (end == std::string_view::npos) return std::nullopt;
  const std::string name = absl::AsciiStrToLower(std::string(host.substr(brackets, end - brackets)));
  const std::string_view rest = host.substr(end + brackets);
  if (!(brackets ? IsV6(name) : IsName(name))) return std::nullopt;
  if (!rest.empty() && (rest[0] != ':' || !IsPort(rest.substr(1)))) return std::nullopt;
  return name;
}

RequestGuard::RequestGuard(const std::string& address, const std::vector<std::string>& names)
    : names_{"localhost", "127.0.0.1", "::1", absl::AsciiStrToLower(address)} {
  for (const std::string& name : names) names_.insert(absl::AsciiStrToLower(name));
}

absl::Status RequestGuard::CheckHost(const std::string& host) const {
  if (const auto name = HostName(host); name && names_.count(*name)) return absl::OkStatus();
  return FieldError("Host", host,
                    "is not one of the server's names: reach it by localhost, or start it with --http_host_names=NAME",
                    absl::StatusCode::kPermissionDenied);
}

absl::Status RequestGuard::CheckOrigin(const std::string& origin, const std::string& host) const {
  if (origin.empty() || origin == "http://" + host || origin == "https://" + host) return absl::OkStatus();
  return FieldError("Origin", origin, "is another site than the server's own, which may change nothing here",
                    absl::StatusCode::kPermissionDenied);
}

absl::Status RequestGuard::CheckContentType(const std::string& type) const {
  const std::string lower = absl::AsciiStrToLower(type.substr(0, type.find(';')));
  if (absl::StripAsciiWhitespace(lower) == "application/json") return absl::OkStatus();
  return FieldError("Content-Type", type, "must be application/json: send the request as JSON with this header");
}

}  // namespace legoai::server
