#include "server/oidc/testing/test_key.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/oidc/base64url.h"

namespace legoai::oidc {
namespace {

using Json = nlohmann::json;

// Tests have no use for a library that fails.
template <typename Value>
Value Must(Value value) {
  if (!value) std::abort();
  return value;
}

std::string BytesOf(const BIGNUM* number, size_t bytes) {
  std::string text(bytes, '\0');
  Must(BN_bn2binpad(number, reinterpret_cast<unsigned char*>(text.data()), static_cast<int>(bytes)) >= 0);
  return text;
}

// r and s of 32 bytes each.
std::string RawOf(const std::string& der) {
  const auto* at = reinterpret_cast<const unsigned char*>(der.data());
  ECDSA_SIG* const signature = Must(d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(der.size())));
  const std::string raw = BytesOf(ECDSA_SIG_get0_r(signature), 32) + BytesOf(ECDSA_SIG_get0_s(signature), 32);
  ECDSA_SIG_free(signature);
  return raw;
}

}  // namespace

TestKey TestKey::Rsa(const std::string& id, int bits) { return {id, Must(EVP_RSA_gen(static_cast<unsigned>(bits)))}; }

TestKey TestKey::Ec(const std::string& id, const char* curve) { return {id, Must(EVP_EC_gen(curve))}; }

std::string TestKey::Number(const char* parameter, size_t bytes) const {
  BIGNUM* number = nullptr;
  Must(EVP_PKEY_get_bn_param(key_.get(), parameter, &number) == 1);
  const std::string text = BytesOf(number, bytes > 0 ? bytes : static_cast<size_t>(BN_num_bytes(number)));
  BN_free(number);
  return EncodeBase64Url(text);
}

Json TestKey::Jwk() const {
  Json jwk = {{"kid", id_}, {"use", "sig"}};
  if (IsRsa()) {
    jwk.update({{"kty", "RSA"},
                {"alg", "RS256"},
                {"n", Number(OSSL_PKEY_PARAM_RSA_N, 0)},
                {"e", Number(OSSL_PKEY_PARAM_RSA_E, 0)}});
  } else {
    const size_t bytes = static_cast<size_t>(EVP_PKEY_bits(key_.get()) + 7) / 8;
    jwk.update({{"kty", "EC"},
                {"crv", absl::StrCat("P-", EVP_PKEY_bits(key_.get()))},
                {"x", Number(OSSL_PKEY_PARAM_EC_PUB_X, bytes)},
                {"y", Number(OSSL_PKEY_PARAM_EC_PUB_Y, bytes)}});
  }
  return jwk;
}

std::string TestKey::PublicPem() const {
  BIO* const out = Must(BIO_new(BIO_s_mem()));
  Must(PEM_write_bio_PUBKEY(out, key_.get()) == 1);
  char* text = nullptr;
  const long size = BIO_get_mem_data(out, &text);
  const std::string pem(text, static_cast<size_t>(size));
  BIO_free(out);
  return pem;
}

Json TestKey::Header() const { return {{"alg", IsRsa() ? "RS256" : "ES256"}, {"kid", id_}, {"typ", "JWT"}}; }

std::string TestKey::Signature(const std::string& text, bool der) const {
  EVP_MD_CTX* const context = Must(EVP_MD_CTX_new());
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
  Must(EVP_DigestSignInit(context, nullptr, EVP_sha256(), nullptr, key_.get()) == 1);
  size_t size = 0;
  Must(EVP_DigestSign(context, nullptr, &size, bytes, text.size()) == 1);
  std::string signature(size, '\0');
  Must(EVP_DigestSign(context, reinterpret_cast<unsigned char*>(signature.data()), &size, bytes, text.size()) == 1);
  EVP_MD_CTX_free(context);
  signature.resize(size);
  return IsRsa() || der ? signature : RawOf(signature);
}

std::string TestKey::Sign(const Json& header, const std::string& payload) const {
  const std::string text = absl::StrCat(EncodeBase64Url(header.dump()), ".", EncodeBase64Url(payload));
  return absl::StrCat(text, ".", EncodeBase64Url(Signature(text)));
}

std::string KeySetText(const std::vector<TestKey>& keys) {
  Json list = Json::array();
  for (const TestKey& key : keys) list.push_back(key.Jwk());
  return Json{{"keys", list}}.dump();
}

std::string Compact(const std::string& header, const std::string& payload, const std::string& signature) {
  return absl::StrCat(EncodeBase64Url(header), ".", EncodeBase64Url(payload), ".", EncodeBase64Url(signature));
}

std::string Hmac(const std::string& secret, const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  Must(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), reinterpret_cast<const unsigned char*>(text.data()),
            text.size(), digest, &size));
  return {reinterpret_cast<const char*>(digest), size};
}

Json TestClaims(int64_t now_seconds, const std::vector<std::string>& groups) {
  return {{"iss", kTestIssuer}, {"aud", kTestAudience}, {"sub", "f3a1-anna"}, {"email", "anna@example.org"}, {"groups", groups},
          {"iat", now_seconds}, {"nbf", now_seconds}, {"exp", now_seconds + 3600}};
}

}  // namespace legoai::oidc
