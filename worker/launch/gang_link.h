// One end of the connection between the coordinator of a gang and the supervisor of another host.
//
// A host whose process runs says so every second, from a thread of its own: so one that waits for a disk is not silent, and one
// that is stopped, or cut off, is.
#pragma once

#include <google/protobuf/message_lite.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/process/framing.h"
#include "core/process/mutex.h"

namespace legoai::launch {

// Longer than this, a host of a gang that trains may not be silent.
inline constexpr absl::Duration kHostTimeout = absl::Seconds(15);

class GangLink {
 public:
  // Takes ownership of the connected socket `fd`. `alive` is what is sent every second from StartBeat() on.
  GangLink(int fd, std::unique_ptr<google::protobuf::MessageLite> alive);
  ~GangLink();
  GangLink(const GangLink&) = delete;
  GangLink& operator=(const GangLink&) = delete;

  // From now on the peer is told that this process runs. Call once.
  void StartBeat();

  int fd() const { return fd_; }
  const std::string& peer() const { return peer_; }  // its address

  // If it cannot be sent the connection is closed, which the next Receive() tells. Thread-safe.
  void Send(const google::protobuf::MessageLite& message);

  // The last message: waits, a few seconds at most, until the peer has read it and closed its end.
  void Finish(const google::protobuf::MessageLite& last);

  // When the socket is readable: reads what is there into `message`, one after another, each followed by `hear`. Not thread-safe.
  // Errors: Unavailable: the connection is closed or lost; InvalidArgument: what came is no such message.
  absl::Status Receive(google::protobuf::MessageLite* message, absl::FunctionRef<void()> hear);

 private:
  void Beat();
  void EndBeat();

  const int fd_;
  const std::string peer_;
  const std::unique_ptr<google::protobuf::MessageLite> alive_;
  MessageReader reader_;
  Mutex send_mutex_;
  Mutex mutex_;
  Condition ending_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread beat_;
};

// The end of a side that sends such messages, one of which says that it is alive.
template <typename Message>
std::unique_ptr<GangLink> MakeGangLink(int fd) {
  auto alive = std::make_unique<Message>();
  alive->mutable_alive();
  return std::make_unique<GangLink>(fd, std::move(alive));
}

}  // namespace legoai::launch
