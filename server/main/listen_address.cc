#include "server/main/listen_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::server {
namespace {

bool IsAllDigits(const std::string& text) { return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos; }

// 0.0.0.0 or ::, however it is written.
bool IsEveryAddress(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  if (inet_aton(host.c_str(), &v4) != 0) return v4.s_addr == INADDR_ANY;  // "0" as well
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}

}  // namespace

absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& field, const std::string& text) {
  const auto refused = [&] {
    return FieldError(field, text, "must be ADDRESS:PORT, such as 127.0.0.1:7420 or [::1]:7420 (port 0: any that is free)");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return refused();
  ListenAddress address;
  address.host = text.substr(0, colon);
  const bool brackets = address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']';
  if (brackets) address.host = address.host.substr(1, address.host.size() - 2);
  const bool is_v6 = address.host.find(':') != std::string::npos;
  const std::string port = text.substr(colon + 1);
  if (address.host.empty() || brackets != is_v6 || address.host.find_first_of("[]/%@") != std::string::npos ||
      !IsAllDigits(port) || !absl::SimpleAtoi(port, &address.port) || address.port > 65535) {
    return refused();
  }
  return address;
}

std::string ToText(const ListenAddress& address) {
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return is_v6 ? absl::StrCat("[", address.host, "]:", address.port) : absl::StrCat(address.host, ":", address.port);
}

absl::StatusOr<std::string> AdvertisedAddress(const std::string& given, const ListenAddress& listening) {
  if (!given.empty()) {
    constexpr char kField[] = "--advertise_address";
    ASSIGN_OR_RETURN(const auto address, ParseListenAddress(kField, given));
    if (address.port == 0) return FieldError(kField, given, "must have the port that others call");
    if (IsEveryAddress(address.host))
      return FieldError(kField, given, "is every address of this host, which nobody can call: give one by which others reach it");
    return given;
  }
  if (listening.port == 0) return std::string();
  if (!IsEveryAddress(listening.host)) return ToText(listening);
  char host[HOST_NAME_MAX + 1] = "";
  gethostname(host, HOST_NAME_MAX);
  return ToText({host, listening.port});
}

absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& field, const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0) {
    return FieldError(field, host, absl::StrCat("is no address of this machine (", gai_strerror(error), ")"),
                      absl::StatusCode::kNotFound);
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  std::vector<std::string> numbers;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    char text[NI_MAXHOST] = "";
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0) numbers.push_back(text);
  }
  return numbers;
}

bool IsLoopback(const std::string& number) {
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, number.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  if (inet_pton(AF_INET6, number.c_str(), &v6) != 1) return false;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return v6.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&v6);
}

std::string MissingOf(const Protection& protection) {
  if (protection.tokens && protection.tls) return "";
  return protection.tokens ? "TLS" : protection.tls ? "tokens" : "tokens and TLS";
}

absl::Status CheckReachable(const std::string& field, const ListenAddress& address, const std::vector<std::string>& numbers,
                            const Protection& protection) {
  const auto open = std::find_if_not(numbers.begin(), numbers.end(), &IsLoopback);
  const std::string missing = MissingOf(protection);
  if (protection.insecure || missing.empty() || (open == numbers.end() && !numbers.empty())) return absl::OkStatus();
  const std::string what = open == numbers.end() || *open == address.host ? "" : absl::StrCat(" (as ", *open, ")");
  const std::string harm =
      protection.tokens ? "whoever listens on the way learns the tokens" : "whoever reaches it can do everything";
  return FieldError(field, ToText(address),
                    absl::StrCat("can be reached", what, " from other machines, and without ", missing, " ", harm,
                                 ". Listen on 127.0.0.1 or [::1], or give ", protection.tokens ? "" : "--tokens",
                                 protection.tokens || protection.tls ? "" : ", ",
                                 protection.tls ? "" : "--tls_cert and --tls_key",
                                 ", or, where a network of your own keeps others away, start it with --insecure"),
                    absl::StatusCode::kFailedPrecondition);
}

}  // namespace legoai::server
