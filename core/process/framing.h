// Protocol buffers over a stream socket: four bytes of length, little-endian, then the message. A descriptor is not
// owned. One writer and one reader of a socket may be different threads; two writers may not.
#pragma once

#include <google/protobuf/message_lite.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai::launch {

// Larger messages are refused on both sides, so no peer can make the other allocate without bound.
inline constexpr int64_t kMaxMessageBytes = int64_t{64} << 20;

// Writes the whole message, waiting for the peer if the socket is full. Errors: InvalidArgument: larger than kMaxMessageBytes;
// Unavailable: the peer is gone; DeadlineExceeded: the socket's send timeout (SO_SNDTIMEO) has passed. After an error the stream
// is unusable.
absl::Status WriteMessage(int fd, const google::protobuf::MessageLite& message);

class MessageReader {
 public:
  explicit MessageReader(int fd, int64_t max_bytes = kMaxMessageBytes) : fd_(fd), max_bytes_(max_bytes) {}

  // Reads once from the socket into the buffer. False: the peer has closed it.
  absl::StatusOr<bool> Fill();
  // Takes the next complete message from the buffer; false if there is none yet. Errors: InvalidArgument: a length above the
  // limit, or bytes that do not parse as such a message.
  absl::StatusOr<bool> Next(google::protobuf::MessageLite* message);
  // Waits for a message. False: the peer has closed the socket between two messages. DataLoss: in the middle of one.
  absl::StatusOr<bool> Read(google::protobuf::MessageLite* message);
  // Whether a part of a message is left in the buffer.
  bool torn() const { return !buffer_.empty(); }

 private:
  const int fd_;
  const int64_t max_bytes_;
  std::string buffer_;
};

}  // namespace legoai::launch
