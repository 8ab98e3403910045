// A real S3 store for tests: versitygw over a new folder, as tools/versitygw.lock pins it, on a port of 127.0.0.1. It ends with
// the thread that started it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai::objectstore {

// Thread-safety: none.
class Versitygw {
 public:
  // In a new folder below `under`, with the bucket "bucket"; sets this process's environment, which children have too, so that
  // clients find it and may do everything. Errors: FailedPrecondition with what is missing or what the gateway said.
  static absl::StatusOr<std::unique_ptr<Versitygw>> Start(const std::string& under);
  ~Versitygw();
  Versitygw(const Versitygw&) = delete;
  Versitygw& operator=(const Versitygw&) = delete;

  // Kills it, at once.
  void End();
  // After End(), at the same address over the same folder; returns when it answers.
  absl::Status StartAgain();

  const std::string& endpoint() const { return endpoint_; }
  // Where it keeps an object: a file with its contents.
  std::string PathOf(const std::string& key) const { return folder_ + "/objects/bucket/" + key; }

 private:
  Versitygw(std::string program, std::string folder, int port);
  std::string LogTail() const;

  const std::string program_, folder_;
  const int port_;
  const std::string endpoint_;
  pid_t process_ = 0;
};

// Sets the environment so that `access` and `secret` are the keys.
void UseKeys(const std::string& access, const std::string& secret);

inline constexpr char kTestAccess[] = "AKTESTER", kTestSecret[] = "tester/secret+of=this";

}  // namespace legoai::objectstore
