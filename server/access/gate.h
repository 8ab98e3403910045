// Who calls: secrets of tokens, and which token a caller's secret is of. All tokens are kept in memory and read again every
// second, so that one that was made or revoked through another server, or has expired, counts here within that time; through this
// server, at once. While the store cannot be read, those that were read last count. Users whom an OpenID provider vouches for
// come with a token of the provider's instead (users.h). Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/access.pb.h"
#include "server/access/audit.h"
#include "server/access/rate_limit.h"
#include "server/access/rights.h"
#include "server/access/users.h"
#include "server/store/store.h"

namespace legoai::access {

// Secrets (core/process/secret_file.h keeps them in files); pure functions but for NewSecret().

// A new one: "lego_" and 256 bits of the system's random source in base64url. The prefix is for tools that search code and logs
// for secrets.
std::string NewSecret();

// Whether it has the form of one. Anything else needs no look into the store.
bool IsSecret(std::string_view text);

// What the store keeps of one: its SHA-256, hexadecimal. A slow, salted hash is for passwords, which can be guessed; 256 random
// bits cannot, and every call hashes one.
std::string SecretDigest(std::string_view secret);

struct GateOptions {
  absl::Duration refresh = absl::Seconds(1);
  // Of one token, or one user. Many more than a page or a script needs: it keeps one that runs wild from the others.
  double calls_per_second = 200, calls_at_once = 2000;
  // Of one address, calls that are refused because nobody is known by their token.
  double strangers_per_second = 5, strangers_at_once = 100;
  AuditLog* audit = nullptr;     // must outlive the gate; null: nothing is written down
  const Users* users = nullptr;  // must outlive the gate; null: there are tokens alone
};

class Gate {
 public:
  // Does not own the store, which must outlive it. `now_us`: microseconds since 1970, UTC.
  Gate(store::Store* store, std::function<int64_t()> now_us, const GateOptions& options = {});
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Reads the tokens and begins to read them again and again. Call it once, before anything else. Errors: those of the store.
  absl::Status Begin();
  // The same where the store is away, without reading first. Until it was read everybody is told to come again (Unavailable).
  void BeginLater();

  // Who has this secret, or whom this token of the provider is about. Errors: Unauthenticated: there is none, nobody has it, or
  // its token has expired or was revoked; those of Users; Unavailable: the tokens were not read yet.
  absl::StatusOr<Identity> Authenticate(std::string_view secret) const;
  // The same for a call (as in rights.h) from the address `client`, without its port: the call counts, and one by a stranger is
  // written down. Errors: ResourceExhausted if that token or user, or that address without one, makes too many; PermissionDenied
  // for a user of whose groups none has a role here.
  absl::StatusOr<Identity> Enter(std::string_view secret, const std::string& client, std::string_view call);

  // Writes a call and its outcome down, if there is an audit log. `resource`: what it is about.
  void Record(const Identity& who, const std::string& remote, std::string_view call, std::string_view resource,
              const absl::Status& outcome) const;

  // Whether the token of one who was let in still counts: for what stays open. A provider's counts until it expires.
  bool Holds(const Identity& who) const;

  // Reads the tokens again. Errors: those of the store.
  absl::Status Refresh();

  // `look` is called after every reading, on the gate's thread, until what is returned is destroyed, which waits for it. It must
  // not destroy that itself.
  std::shared_ptr<void> AfterRefresh(std::function<void()> look);

 private:
  using Tokens = std::map<std::string, v1::Token, std::less<>>;

  absl::StatusOr<Identity> AuthenticateSecret(std::string_view secret) const;
  void Run();

  store::Store* const store_;
  const std::function<int64_t()> now_us_;
  const GateOptions options_;
  RateLimit calls_, strangers_;
  Mutex refresh_mutex_;  // before mutex_
  mutable Mutex mutex_;
  Condition changed_;
  Tokens by_digest_ ABSL_GUARDED_BY(mutex_), by_name_ ABSL_GUARDED_BY(mutex_);
  bool was_read_ ABSL_GUARDED_BY(mutex_) = false, ends_ ABSL_GUARDED_BY(mutex_) = false;
  Mutex looks_mutex_;
  std::list<std::function<void()>> looks_ ABSL_GUARDED_BY(looks_mutex_);
  std::thread thread_;
};

// As Gate::Enter; Anybody() where `gate` is null: the server asks for no tokens.
absl::StatusOr<Identity> Enter(Gate* gate, std::string_view secret, const std::string& client, std::string_view call);

// With what a stream ends whose token has expired or was revoked meanwhile: Unauthenticated.
absl::Status NoLongerHeld();

// The secret in "Bearer SECRET", the value of the header or metadata `authorization`; empty if it has another form.
std::string BearerOf(std::string_view authorization);

}  // namespace legoai::access
