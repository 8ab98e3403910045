// A provider's public keys: a JWK Set (RFC 7517), of which those count that can check a signature of RS256 or ES256 (RFC 7518).
// Immutable once it is read; thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

struct _cjose_jwk_int;

namespace legoai::oidc {

// Which algorithm a token's header may name is fixed by the key, never by the header alone: otherwise a public key might be taken
// for the secret of HS256, or the signature not be looked at at all.
enum class Algorithm { kRs256, kEs256 };

std::string_view NameOf(Algorithm algorithm);  // "RS256"

inline constexpr size_t kMostKeySetBytes = size_t{256} << 10;
inline constexpr size_t kMostKeys = 100;
inline constexpr int kLeastRsaBits = 2048, kMostRsaBits = 8192;

class Key {
 public:
  const std::string& id() const { return id_; }
  Algorithm algorithm() const { return algorithm_; }

  // Whether the signature of this token, three parts of base64url with dots between, was made with this key and its algorithm.
  // Of the token nothing else is looked at.
  bool HasSigned(std::string_view token) const;

 private:
  friend class KeySet;
  Key(std::string id, Algorithm algorithm, std::shared_ptr<const _cjose_jwk_int> jwk)
      : id_(std::move(id)), algorithm_(algorithm), jwk_(std::move(jwk)) {}

  std::string id_;
  Algorithm algorithm_;
  std::shared_ptr<const _cjose_jwk_int> jwk_;
};

class KeySet {
 public:
  // `json`: {"keys": [...]}. Errors: InvalidArgument: it is no such thing, has two keys of one id and algorithm, or no key that
  // counts, with the reasons.
  static absl::StatusOr<KeySet> Parse(std::string_view json);

  // null: there is none.
  const Key* Find(std::string_view id, Algorithm algorithm) const;
  bool Has(std::string_view id) const;

  const std::vector<Key>& keys() const { return keys_; }
  // Why others of the set do not count, one line each: "key a: is for enc and not for signatures". Keys for other ends are usual.
  const std::vector<std::string>& others() const { return others_; }

 private:
  std::vector<Key> keys_;
  std::vector<std::string> others_;
};

}  // namespace legoai::oidc
