// Keys and signatures as an identity provider makes them, by OpenSSL alone: nothing of it is shared with what checks them.
#pragma once

#include <openssl/evp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace legoai::oidc {

class TestKey {
 public:
  static TestKey Rsa(const std::string& id, int bits = 2048);
  static TestKey Ec(const std::string& id, const char* curve = "P-256");

  const std::string& id() const { return id_; }
  // The public half, with `use` and `alg`.
  nlohmann::json Jwk() const;
  std::string PublicPem() const;

  // {"alg", "kid", "typ": "JWT"}
  nlohmann::json Header() const;
  // The token of these claims, signed as it should be.
  std::string Sign(const nlohmann::json& claims) const { return Sign(Header(), claims.dump()); }
  std::string Sign(const nlohmann::json& header, const std::string& payload) const;
  // Of SHA-256: of ES256 r and s side by side, or, `der`, as OpenSSL writes them.
  std::string Signature(const std::string& text, bool der = false) const;

 private:
  TestKey(std::string id, EVP_PKEY* key) : id_(std::move(id)), key_(key, EVP_PKEY_free) {}
  bool IsRsa() const { return EVP_PKEY_base_id(key_.get()) == EVP_PKEY_RSA; }
  std::string Number(const char* parameter, size_t bytes) const;

  std::string id_;
  std::shared_ptr<EVP_PKEY> key_;
};

// {"keys": [...]}
std::string KeySetText(const std::vector<TestKey>& keys);

// Parts of a token, encoded and joined.
std::string Compact(const std::string& header, const std::string& payload, const std::string& signature);

// HMAC-SHA256, for whoever tries HS256.
std::string Hmac(const std::string& secret, const std::string& text);

inline constexpr char kTestIssuer[] = "https://idp.example/realms/lego", kTestAudience[] = "legoai";

// What such a provider says of anna of these groups, for an hour from `now_seconds` on.
nlohmann::json TestClaims(int64_t now_seconds, const std::vector<std::string>& groups = {});

}  // namespace legoai::oidc
