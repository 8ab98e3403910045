#include "server/oidc/key_set.h"

#include <cjose/cjose.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "proto/text.h"
#include "server/oidc/base64url.h"
#include "server/oidc/strict_json.h"

namespace legoai::oidc {
namespace {

using Json = nlohmann::json;

constexpr int kMostDepth = 8;
constexpr size_t kMostIdBytes = 200;
constexpr size_t kP256Bytes = 32;
constexpr size_t kMostExponentBytes = 4;

absl::Status Passed(const std::string& why) { return absl::InvalidArgumentError(why); }

// The key is for checking signatures, as far as it says what it is for.
absl::Status CheckPurpose(const Json& key, Algorithm algorithm) {
  const std::string use = TextOf(key, "use"), named = TextOf(key, "alg");
  if (!use.empty() && use != "sig") return Passed(absl::StrCat("is for ", CutText(Printable(use)), " and not for signatures"));
  if (!named.empty() && named != NameOf(algorithm))
    return Passed(absl::StrCat("is for ", CutText(Printable(named)), ", which is not taken"));
  const auto operations = key.find("key_ops");
  const bool verifies = operations == key.end() || (operations->is_array() &&
                        std::find(operations->begin(), operations->end(), "verify") != operations->end());
  return verifies ? absl::OkStatus() : Passed("is not for checking signatures (key_ops)");
}

absl::Status CheckRsa(const Json& key) {
  const auto n = DecodeBase64Url(TextOf(key, "n")), e = DecodeBase64Url(TextOf(key, "e"));
  if (!n || !e || n->empty() || e->empty()) return Passed("has no n and e in base64url");
  const size_t zeros = std::min(n->find_first_not_of('\0'), n->size());
  const size_t bytes = n->size() - zeros;
  if (bytes > kMostRsaBits / 8) return Passed(absl::StrCat("has more than ", kMostRsaBits, " bits"));
  // The first byte has its highest bit in a modulus of 8 * bytes bits.
  const bool is_full = bytes > 0 && (static_cast<unsigned char>((*n)[zeros]) & 0x80) != 0;
  if (bytes < kLeastRsaBits / 8 || (bytes == kLeastRsaBits / 8 && !is_full))
    return Passed(absl::StrCat("has fewer than ", kLeastRsaBits, " bits"));
  // With 1 every text would be its own signature.
  uint64_t exponent = 0;
  for (const unsigned char byte : e->substr(0, kMostExponentBytes)) exponent = exponent << 8 | byte;
  const bool is_sound = e->size() <= kMostExponentBytes && exponent >= 3 && exponent % 2 == 1;
  return is_sound ? absl::OkStatus() : Passed("has an exponent that no key has");
}

absl::Status CheckEc(const Json& key) {
  if (TextOf(key, "crv") != "P-256") return Passed("is of another curve than P-256");
  const auto x = DecodeBase64Url(TextOf(key, "x")), y = DecodeBase64Url(TextOf(key, "y"));
  if (x && y && x->size() == kP256Bytes && y->size() == kP256Bytes) return absl::OkStatus();
  return Passed("has no x and y of 32 bytes in base64url");
}

using OwnedJwk = std::shared_ptr<const cjose_jwk_t>;

// Made of what was checked alone.
absl::StatusOr<OwnedJwk> Import(const Json& key, Algorithm algorithm) {
  Json plain = {{"kty", TextOf(key, "kty")}};
  using Names = std::vector<const char*>;
  const Names names = algorithm == Algorithm::kRs256 ? Names{"n", "e"} : Names{"crv", "x", "y"};
  for (const char* name : names) plain[name] = TextOf(key, name);
  const std::string text = plain.dump();
  cjose_err error = {};
  cjose_jwk_t* const jwk = cjose_jwk_import(text.data(), text.size(), &error);
  if (jwk == nullptr) return Passed("is no point of its curve, or no number that a key has");
  return OwnedJwk(jwk, [](const cjose_jwk_t* owned) { cjose_jwk_release(const_cast<cjose_jwk_t*>(owned)); });
}

struct Read {
  Algorithm algorithm;
  OwnedJwk jwk;
};

absl::StatusOr<Read> ReadKey(const Json& key) {
  const std::string type = TextOf(key, "kty"), id = TextOf(key, "kid");
  if (id.empty() || id.size() > kMostIdBytes) return Passed("has no kid, by which tokens name it");
  if (type != "RSA" && type != "EC") return Passed("is of another kty than RSA and EC");
  if (key.contains("d")) return Passed("is a private key, which whoever reads this can sign with: give the provider another one");
  const Algorithm algorithm = type == "RSA" ? Algorithm::kRs256 : Algorithm::kEs256;
  if (absl::Status status = CheckPurpose(key, algorithm); !status.ok()) return status;
  if (absl::Status status = type == "RSA" ? CheckRsa(key) : CheckEc(key); !status.ok()) return status;
  auto jwk = Import(key, algorithm);
  if (!jwk.ok()) return jwk.status();
  return Read{algorithm, *std::move(jwk)};
}

}  // namespace

std::string_view NameOf(Algorithm algorithm) { return algorithm == Algorithm::kRs256 ? "RS256" : "ES256"; }

bool Key::HasSigned(std::string_view token) const {
  cjose_err error = {};
  const std::unique_ptr<cjose_jws_t, void (*)(cjose_jws_t*)> jws(cjose_jws_import(token.data(), token.size(), &error),
                                                                 cjose_jws_release);
  if (jws == nullptr) return false;
  // cjose hashes as the header says and looks at nothing but the kind of the key. The header has to say what the key is for, and
  // a signature of ES256 is two numbers of 32 bytes: cjose takes other lengths, too.
  const char* const named = cjose_header_get(cjose_jws_get_protected(jws.get()), CJOSE_HDR_ALG, &error);
  if (named == nullptr || named != NameOf(algorithm_)) return false;
  const auto signature = DecodeBase64Url(token.substr(token.rfind('.') + 1));
  if (!signature || (algorithm_ == Algorithm::kEs256 && signature->size() != 2 * kP256Bytes)) return false;
  return cjose_jws_verify(jws.get(), jwk_.get(), &error);
}

absl::StatusOr<KeySet> KeySet::Parse(std::string_view text) {
  if (text.size() > kMostKeySetBytes)
    return absl::InvalidArgumentError(absl::StrCat("has more than ", kMostKeySetBytes >> 10, " KiB"));
  const auto json = ParseObject(text, kMostDepth);
  if (!json.ok()) return json.status();
  const auto list = json->find("keys");
  if (list == json->end() || !list->is_array()) return absl::InvalidArgumentError("is no set of keys: {\"keys\": [...]}");
  if (list->size() > kMostKeys) return absl::InvalidArgumentError(absl::StrCat("has more than ", kMostKeys, " keys"));
  KeySet set;
  for (const Json& one : *list) {
    if (!one.is_object()) return absl::InvalidArgumentError("has a key that is no object");
    const std::string id = TextOf(one, "kid");
    auto read = ReadKey(one);
    if (!read.ok()) {
      set.others_.push_back(absl::StrCat("key ", CutText(Printable(id)), ": ", std::string(read.status().message())));
      continue;
    }
    if (set.Find(id, read->algorithm) != nullptr)
      return absl::InvalidArgumentError(absl::StrCat("has two keys with the kid ", CutText(Printable(id))));
    set.keys_.push_back(Key(id, read->algorithm, std::move(read->jwk)));
  }
  if (!set.keys_.empty()) return set;
  return absl::InvalidArgumentError(absl::StrCat("has no key that checks signatures of RS256 or ES256",
                                                 set.others_.empty() ? "" : ": ", absl::StrJoin(set.others_, "; ")));
}

const Key* KeySet::Find(std::string_view id, Algorithm algorithm) const {
  const auto found =
      std::find_if(keys_.begin(), keys_.end(), [&](const Key& key) { return key.id() == id && key.algorithm() == algorithm; });
  return found == keys_.end() ? nullptr : &*found;
}

bool KeySet::Has(std::string_view id) const {
  return Find(id, Algorithm::kRs256) != nullptr || Find(id, Algorithm::kEs256) != nullptr;
}

}  // namespace legoai::oidc
