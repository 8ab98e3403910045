// Stands between a store and a PostgreSQL on a Unix socket, and cuts connections: all at once, or the one that commits next,
// before the database hears of it or after it has answered.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "core/process/mutex.h"

namespace legoai::store {

// Thread-safe.
class CuttingProxy {
 public:
  enum class Cut { kNone, kBeforeCommit, kAfterCommit };

  // Listens in `folder` (an existing one) as PostgreSQL does, for the server whose socket lies in `server_folder`.
  CuttingProxy(std::string folder, std::string server_folder);
  ~CuttingProxy();
  CuttingProxy(const CuttingProxy&) = delete;
  CuttingProxy& operator=(const CuttingProxy&) = delete;

  void CutNextCommit(Cut when) { next_ = when; }
  bool cut() const { return next_ == Cut::kNone; }  // the one that was asked for
  void CutAll();
  // New connections are cut at once, as by a database that is away.
  void RefuseNew(bool refuse) { refuse_ = refuse; }

 private:
  struct Pair {
    int client, server;
  };
  void Accept();
  void Relay(Pair pair);
  bool Forward(Pair pair, bool to_server);

  const std::string server_path_;
  int listening_ = -1;
  std::atomic<Cut> next_ = Cut::kNone;
  std::atomic<bool> refuse_ = false, end_ = false;
  Mutex mutex_;
  std::vector<Pair> pairs_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> relays_ ABSL_GUARDED_BY(mutex_);
  std::thread accepting_;
};

}  // namespace legoai::store
