// A real HTTP server on a port of 127.0.0.1 that gives a provider's keys away, or does not. Thread-safe.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "core/process/mutex.h"

namespace legoai::oidc {

class KeyServer {
 public:
  explicit KeyServer(const std::string& body);
  ~KeyServer();
  KeyServer(const KeyServer&) = delete;
  KeyServer& operator=(const KeyServer&) = delete;

  std::string url() const;
  int requests() const { return requests_; }  // that came so far

  // What the next ones are answered.
  void Answer(const std::string& body, int status = 200, const std::string& headers = "");
  void Hang();    // nothing, while the connection stays open
  void HangUp();  // nothing, and the connection is closed

 private:
  enum class Manner { kAnswer, kHang, kHangUp };
  void Serve();
  void Set(Manner manner, std::string answer);

  int listener_ = -1, port_ = 0;
  std::atomic<int> requests_ = 0;
  Mutex mutex_;
  Manner manner_ ABSL_GUARDED_BY(mutex_) = Manner::kAnswer;
  std::string answer_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> open_;  // those that hang; of the thread
  std::thread thread_;
};

}  // namespace legoai::oidc
