#include "core/process/framing.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace legoai::launch {
namespace {

constexpr size_t kHeaderBytes = 4;

std::string EncodeLength(uint32_t bytes) {
  std::string header(kHeaderBytes, '\0');
  for (size_t i = 0; i < kHeaderBytes; ++i) header[i] = static_cast<char>(bytes >> (8 * i));
  return header;
}

uint32_t DecodeLength(const std::string& buffer) {
  uint32_t bytes = 0;
  for (size_t i = 0; i < kHeaderBytes; ++i) bytes |= uint32_t{static_cast<uint8_t>(buffer[i])} << (8 * i);
  return bytes;
}

absl::Status SendError(int error) {
  if (error == EAGAIN || error == EWOULDBLOCK) return absl::DeadlineExceededError("the peer does not read its messages");
  return absl::UnavailableError(absl::StrCat("the peer is gone: ", std::strerror(error)));
}

}  // namespace

absl::Status WriteMessage(int fd, const google::protobuf::MessageLite& message) {
  const size_t bytes = message.ByteSizeLong();
  if (bytes > static_cast<size_t>(kMaxMessageBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", bytes, " bytes is larger than the limit of ", kMaxMessageBytes));
  }
  std::string frame = EncodeLength(static_cast<uint32_t>(bytes));
  if (!message.AppendToString(&frame)) return absl::InternalError("the message cannot be serialized");
  for (size_t done = 0; done < frame.size();) {
    const ssize_t sent = send(fd, frame.data() + done, frame.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return SendError(errno);
    done += static_cast<size_t>(sent);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> MessageReader::Fill() {
  char chunk[65536];
  ssize_t got;
  do {
    got = recv(fd_, chunk, sizeof(chunk), 0);
  } while (got < 0 && errno == EINTR);
  // A peer that died with unread messages resets the connection: for the reader it is gone, as if it had closed it.
  if (got < 0 && errno == ECONNRESET) return false;
  if (got < 0) return absl::UnavailableError(absl::StrCat("cannot read from the peer: ", std::strerror(errno)));
  buffer_.append(chunk, static_cast<size_t>(got));
  return got > 0;
}

absl::StatusOr<bool> MessageReader::Next(google::protobuf::MessageLite* message) {
  if (buffer_.size() < kHeaderBytes) return false;
  const int64_t bytes = DecodeLength(buffer_);
  if (bytes > max_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the peer announces a message of ", bytes, " bytes; the limit is ", max_bytes_));
  }
  if (buffer_.size() < kHeaderBytes + bytes) return false;
  if (!message->ParseFromArray(buffer_.data() + kHeaderBytes, static_cast<int>(bytes))) {
    return absl::InvalidArgumentError(absl::StrCat("the peer sent ", bytes, " bytes that are no ", message->GetTypeName()));
  }
  buffer_.erase(0, kHeaderBytes + bytes);
  return true;
}

absl::StatusOr<bool> MessageReader::Read(google::protobuf::MessageLite* message) {
  while (true) {
    absl::StatusOr<bool> got = Next(message);
    if (!got.ok() || *got) return got;
    absl::StatusOr<bool> open = Fill();
    if (!open.ok()) return open;
    if (*open) continue;
    if (torn()) return absl::DataLossError("the peer closed the connection in the middle of a message");
    return false;
  }
}

}  // namespace legoai::launch
