// Makes, lists and revokes tokens: the service AccessControl without gRPC. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/access.pb.h"
#include "server/access/gate.h"
#include "server/access/rights.h"
#include "server/store/store.h"
#include "server/store/ulid.h"

namespace legoai::access {

inline constexpr double kLongestLifetimeSeconds = 366 * 86400.0;
inline constexpr double kUsualLifetimeSeconds = 90 * 86400.0;
// All are kept in memory.
inline constexpr size_t kMostTokens = 10'000;

class Tokens {
 public:
  // Owns neither pointer; both must outlive it. `gate` may be null: then the server asks for no tokens yet.
  Tokens(store::Store* store, Gate* gate, std::function<int64_t()> now_us);

  // `who` has the right to the call (CheckRight). Nobody makes a token that may do more than their own. Errors: FieldErrors of
  // the request; PermissionDenied; NotFound for another project; ResourceExhausted beyond kMostTokens.
  absl::StatusOr<v1::CreateTokenResponse> Create(const Identity& who, const v1::CreateTokenRequest& request);
  // Of operators all, otherwise those of the caller's project; of an admin of all projects those of each.
  absl::StatusOr<v1::ListTokensResponse> List(const Identity& who);
  // Errors: NotFound, also for tokens that are not the caller's to revoke.
  absl::StatusOr<v1::Token> Revoke(const Identity& who, const v1::RevokeTokenRequest& request);

  // Whether an operator has a token that counts: neither revoked nor expired. Errors: those of the store.
  absl::StatusOr<bool> HasOperator();

  // The first operator's: made if no operator has a token that counts, and written to the file `path`, for its owner alone; in
  // one transaction, so that of several who try one makes it. True: it was made. Errors: those of the store, of Create() beyond
  // kMostTokens, and of the file; then there is no such token either.
  absl::StatusOr<bool> MakeFirst(const std::string& path);

 private:
  absl::StatusOr<std::vector<v1::StoredToken>> All();
  v1::StoredToken NewToken(const std::string& secret, double lifetime_seconds);
  absl::Status MakeRoom(store::Transaction& transaction, const std::vector<v1::StoredToken>& all);
  void Tell();

  store::Store* const store_;
  Gate* const gate_;
  const std::function<int64_t()> now_us_;
  store::UlidSource ids_;
};

}  // namespace legoai::access
