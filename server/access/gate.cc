#include "server/access/gate.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/files.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/text.h"
#include "server/metrics/log.h"
#include "server/oidc/jwt.h"
#include "server/store/ulid.h"

namespace legoai::access {
namespace {

constexpr size_t kLongestResource = 200;  // of what a client wrote
constexpr std::string_view kPrefix = "lego_";
constexpr int kWords = 4;        // of 64 bits
constexpr size_t kLetters = 43;  // of 32 bytes in base64url, without padding

absl::Status Refused(const std::string& token, const std::string& remedy) {
  return FieldError("token", token, remedy, absl::StatusCode::kUnauthenticated);
}

// OK while the token counts.
absl::Status CheckToken(const v1::Token& token, int64_t now_us) {
  const std::string renewal = "; ask who administers the project, or an operator, for another one";
  if (token.revoke_time_us() > 0)
    return Refused(token.name(), absl::StrCat("was revoked on ", server::LogTime(token.revoke_time_us()), renewal));
  if (token.expire_time_us() <= now_us)
    return Refused(token.name(), absl::StrCat("expired on ", server::LogTime(token.expire_time_us()), renewal));
  return absl::OkStatus();
}

absl::Status TooManyOf(const std::string& client) {
  return absl::ResourceExhaustedError(
      absl::StrCat("your address (", client, ") makes too many calls without a token that counts: wait a few seconds"));
}

}  // namespace

std::string NewSecret() {
  uint64_t words[kWords];
  for (uint64_t& word : words) word = store::SystemRandom();
  const std::string text = absl::WebSafeBase64Escape(std::string(reinterpret_cast<const char*>(words), sizeof(words)));
  return absl::StrCat(std::string(kPrefix), text.substr(0, kLetters));
}

bool IsSecret(std::string_view text) {
  if (!text.starts_with(kPrefix) || text.size() != kPrefix.size() + kLetters) return false;
  text.remove_prefix(kPrefix.size());
  return std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; });
}

std::string SecretDigest(std::string_view secret) { return checkpoint::Sha256(secret); }

Gate::Gate(store::Store* store, std::function<int64_t()> now_us, const GateOptions& options)
    : store_(store),
      now_us_(std::move(now_us)),
      options_(options),
      calls_(options.calls_per_second, options.calls_at_once),
      strangers_(options.strangers_per_second, options.strangers_at_once) {}

Gate::~Gate() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

absl::Status Gate::Begin() {
  RETURN_IF_ERROR(Refresh());
  BeginLater();
  return absl::OkStatus();
}

void Gate::BeginLater() {
  thread_ = std::thread([this] { Run(); });
}

absl::Status Gate::Refresh() {
  // One after the other: what was read first must not be what counts last.
  const MutexLock one(refresh_mutex_);
  std::vector<v1::StoredToken> stored;
  RETURN_IF_ERROR(store_->Read([&](store::ReadTransaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(stored, transaction.ListTokens());
    return absl::OkStatus();
  }));
  Tokens by_digest, by_name;
  for (const v1::StoredToken& one : stored) {
    by_digest[one.secret_sha256()] = one.token();
    by_name[one.token().name()] = one.token();
  }
  const MutexLock lock(mutex_);
  by_digest_.swap(by_digest);
  by_name_.swap(by_name);
  was_read_ = true;
  return absl::OkStatus();
}

void Gate::Run() {
  bool told = false;
  while (true) {
    {
      const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(options_.refresh);
      MutexLock lock(mutex_);
      while (!ends_ && changed_.WaitUntil(lock, until)) {
      }
      if (ends_) return;
    }
    const absl::Status status = Refresh();
    if (!status.ok() && !std::exchange(told, true))
      server::LogWarning(absl::StrCat("tokens cannot be read again, those that were read last count: ", status.message()));
    if (status.ok()) told = false;
    const MutexLock lock(looks_mutex_);
    for (const auto& look : looks_) look();
  }
}

absl::StatusOr<Identity> Gate::Authenticate(std::string_view secret) const {
  if (secret.empty()) {
    return Refused("", "is needed: this server asks who calls. Give `lego` --token-file FILE or LEGOAI_TOKEN, an agent "
                       "--token_file; who administers the project makes one with `lego token create`");
  }
  if (!oidc::LooksLikeJwt(secret)) return AuthenticateSecret(secret);
  if (options_.users != nullptr) return options_.users->Authenticate(secret, now_us_());
  return Refused("", "is not known to this server, which takes none of an identity provider: its operator names one by "
                     "--oidc_issuer");
}

absl::StatusOr<Identity> Gate::AuthenticateSecret(std::string_view secret) const {
  v1::Token token;
  {
    const std::string digest = IsSecret(secret) ? SecretDigest(secret) : "";
    const MutexLock lock(mutex_);
    const auto found = by_digest_.find(digest);
    if (!was_read_)
      return absl::UnavailableError("this server has not read yet whose tokens count, since its database is away: try again");
    if (found == by_digest_.end()) {
      return Refused("", "is not known to this server: was it made for another one? One that was made a moment ago, on another "
                         "server of the same store, is known here a second later");
    }
    token = found->second;
  }
  RETURN_IF_ERROR(CheckToken(token, now_us_()));
  return Identity{.token = token.name(),
                  .grants = {{token.role(), token.project()}},
                  .expire_time_us = token.expire_time_us()};
}

absl::StatusOr<Identity> Gate::Enter(std::string_view secret, const std::string& client, std::string_view call) {
  auto who = Authenticate(secret);
  if (absl::IsUnavailable(who.status())) return who;
  if (!who.ok()) {
    if (!strangers_.Take(client)) return TooManyOf(client);
    Record(Identity(), client, call, "", who.status());
    return who;
  }
  if (!calls_.Take(who->token.empty() ? absl::StrCat("users/", who->subject) : who->token)) {
    return absl::ResourceExhaustedError(absl::StrCat("more than ", options_.calls_per_second, " calls a second with ",
                                                     NameOf(*who), ", as many as one token may make: call less often"));
  }
  if (!who->grants.empty()) return who;
  // Whoever the provider knows may call; what they fill the audit log with is limited as strangers' calls are.
  if (!strangers_.Take(client)) return TooManyOf(client);
  const absl::Status denied = FieldError("token", NameOf(*who),
                                         "is of a user none of whose groups has a role on this server: ask who administers the "
                                         "project for such a group",
                                         absl::StatusCode::kPermissionDenied);
  Record(*who, client, call, "", denied);
  return denied;
}

void Gate::Record(const Identity& who, const std::string& remote, std::string_view call, std::string_view resource,
                  const absl::Status& outcome) const {
  if (options_.audit == nullptr) return;
  v1::AuditRecord record;
  record.set_time_us(now_us_());
  record.set_token(who.token);
  record.set_issuer(who.issuer);
  record.set_subject(who.subject);
  record.set_user(who.user);
  const v1::Role role = RoleIn(who, ProjectOf(resource));
  record.set_role(role != v1::ROLE_UNSPECIFIED ? role : HighestRole(who));
  record.set_call(std::string(call));
  record.set_resource(ToUtf8(resource.substr(0, kLongestResource)));
  record.set_remote(remote);
  record.set_outcome(absl::StatusCodeToString(outcome.code()));
  options_.audit->Append(record);
}

bool Gate::Holds(const Identity& who) const {
  if (!who.subject.empty()) return now_us_() < who.expire_time_us;
  const MutexLock lock(mutex_);
  const auto found = by_name_.find(who.token);
  return found != by_name_.end() && CheckToken(found->second, now_us_()).ok();
}

std::shared_ptr<void> Gate::AfterRefresh(std::function<void()> look) {
  const MutexLock lock(looks_mutex_);
  looks_.push_back(std::move(look));
  return {this, [this, at = std::prev(looks_.end())](void*) {
            const MutexLock lock(looks_mutex_);
            looks_.erase(at);
          }};
}

absl::StatusOr<Identity> Enter(Gate* gate, std::string_view secret, const std::string& client, std::string_view call) {
  if (gate == nullptr) return Anybody();
  return gate->Enter(secret, client, call);
}

absl::Status NoLongerHeld() {
  return absl::UnauthenticatedError("the token of this stream has expired or was revoked: come back with another one");
}

std::string BearerOf(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  const bool has = authorization.size() > kScheme.size() &&
                   absl::EqualsIgnoreCase(absl::string_view(authorization.data(), kScheme.size()),
                                          absl::string_view(kScheme.data(), kScheme.size()));
  if (!has) return "";
  authorization.remove_prefix(kScheme.size());
  return std::string(absl::StripAsciiWhitespace(absl::string_view(authorization.data(), authorization.size())));
}

}  // namespace legoai::access
