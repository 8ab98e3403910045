#include "core/objectstore/s3_options.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai::objectstore {
namespace {

constexpr int kMostAttempts = 1000;
std::atomic<int> attempts_of_process{4};

// Empty where it is not set.
std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The first of two that is set, and its name.
struct Named {
  const char* name;
  std::string value;
};
Named FirstOf(const char* first, const char* second) {
  std::string value = Variable(first);
  return value.empty() ? Named{second, Variable(second)} : Named{first, std::move(value)};
}

absl::StatusOr<std::string> Endpoint() {
  Named endpoint = FirstOf("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
  std::string& url = endpoint.value;
  if (url.empty()) return url;
  if (absl::EndsWith(url, "/")) url.pop_back();
  const size_t host = absl::StartsWith(url, "https://") ? 8 : absl::StartsWith(url, "http://") ? 7 : 0;
  const bool plain = host > 0 && url.size() > host && IsPrintable(url) && url.find_first_of("/?#@ ", host) == std::string::npos;
  // Before an @ there may be a key, so the value is not repeated.
  if (!plain) return FieldError(endpoint.name, "", "must be http://HOST[:PORT] or https://HOST[:PORT] and nothing more");
  return url;
}

absl::StatusOr<std::string> Region() {
  const Named region = FirstOf("AWS_REGION", "AWS_DEFAULT_REGION");
  if (region.value.empty()) return std::string("us-east-1");
  const bool plain = std::all_of(region.value.begin(), region.value.end(),
                                 [](unsigned char c) { return absl::ascii_isalnum(c) || c == '-'; });
  if (!plain) return FieldError(region.name, CutText(region.value), "must be a region's name, such as eu-central-1");
  return region.value;
}

absl::StatusOr<std::string> Key(const char* name) {
  std::string key = Variable(name);
  if (key.empty())
    return FieldError(name, "",
                      "is not set, and an object store lets nobody in without: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
                      "in the environment of `lego` and of every agent",
                      absl::StatusCode::kPermissionDenied);
  if (!IsPrintable(key) || absl::StrContains(key, ' '))
    return FieldError(name, "", "has characters that no key has: set it anew");
  return key;
}

std::string CaBundle() {
  std::string given = Variable("AWS_CA_BUNDLE");
  return given.empty() ? SystemCaBundle() : given;
}

absl::StatusOr<int> Attempts() {
  const std::string text = Variable("AWS_MAX_ATTEMPTS");
  int attempts = attempts_of_process;
  if (text.empty()) return attempts;
  if (!absl::SimpleAtoi(text, &attempts) || attempts < 1 || attempts > kMostAttempts)
    return FieldError("AWS_MAX_ATTEMPTS", CutText(text), absl::StrCat("must be a whole number from 1 to ", kMostAttempts));
  return attempts;
}

}  // namespace

absl::StatusOr<S3Options> OptionsFromEnvironment() {
  S3Options options;
  ASSIGN_OR_RETURN(options.endpoint, Endpoint());
  ASSIGN_OR_RETURN(options.region, Region());
  ASSIGN_OR_RETURN(options.access_key, Key("AWS_ACCESS_KEY_ID"));
  ASSIGN_OR_RETURN(options.secret_key, Key("AWS_SECRET_ACCESS_KEY"));
  options.session_token = Variable("AWS_SESSION_TOKEN");
  if (!IsPrintable(options.session_token)) return FieldError("AWS_SESSION_TOKEN", "", "has control characters: set it anew");
  options.ca_bundle = CaBundle();
  ASSIGN_OR_RETURN(options.max_attempts, Attempts());
  return options;
}

std::string SystemCaBundle() {
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                           "/etc/ssl/cert.pem"}) {
    if (access(file, R_OK) == 0) return file;
  }
  return "";
}

void SetMaxAttempts(int attempts) { attempts_of_process = attempts; }

std::string BucketAddress(const S3Options& options, const std::string& bucket) {
  if (!options.endpoint.empty()) return absl::StrCat(options.endpoint, "/", bucket);
  const std::string host = absl::StrCat("s3.", options.region, ".amazonaws.com");
  // The certificate is of *.s3..., where the star stands for no dot.
  if (absl::StrContains(bucket, '.')) return absl::StrCat("https://", host, "/", bucket);
  return absl::StrCat("https://", bucket, ".", host);
}

}  // namespace legoai::objectstore
