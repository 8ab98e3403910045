// How an object store is reached: the environment variables of AWS's own tools, read anew for each client, so that recipes, logs
// and stored jobs never hold a key. Thread-safety: reads of the environment.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace legoai::objectstore {

struct S3Options {
  std::string endpoint;       // AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL: "http://127.0.0.1:7070"; empty: Amazon's of the region
  std::string region;         // AWS_REGION or AWS_DEFAULT_REGION; us-east-1 if unset, as AWS's tools have it
  std::string access_key;     // AWS_ACCESS_KEY_ID
  std::string secret_key;     // AWS_SECRET_ACCESS_KEY
  std::string session_token;  // AWS_SESSION_TOKEN; usually empty
  std::string ca_bundle;      // AWS_CA_BUNDLE: a file of certificates to trust instead of the system's, which are looked for
  int max_attempts = 0;       // AWS_MAX_ATTEMPTS; unset: as SetMaxAttempts said
};

// Errors, of the variable: no keys; an endpoint that is no http:// or https:// URL of a host, or has more than that; a region
// that is no name; attempts that are no number from 1 to 1000. Values of keys are in no message.
absl::StatusOr<S3Options> OptionsFromEnvironment();

// The file in which this system has the certificates that its users trust, as one distribution or another keeps it; empty: none
// is there, and libcurl takes the place that it was built for.
std::string SystemCaBundle();

// Of this process, where AWS_MAX_ATTEMPTS is not set: how often a request is made before its failure counts. Pauses between the
// attempts grow from half a second to 15 seconds. 4 unless it was called: a wrong endpoint is told within seconds. A trainer,
// whose steps would be lost, has kPatient.
inline constexpr int kPatient = 16;  // some two minutes of pauses
void SetMaxAttempts(int attempts);

// "https://BUCKET.s3.REGION.amazonaws.com", or ENDPOINT/BUCKET. Where keys begin; without a slash at the end.
std::string BucketAddress(const S3Options& options, const std::string& bucket);

}  // namespace legoai::objectstore
