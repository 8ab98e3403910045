#include "core/process/framing.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <thread>

#include "proto/legoai/v1/launch.pb.h"

namespace legoai::launch {
namespace {

class FramingTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds_), 0); }
  void TearDown() override {
    CloseWriter();
    close(fds_[1]);
  }
  void CloseWriter() {
    if (fds_[0] >= 0) close(fds_[0]);
    fds_[0] = -1;
  }
  static v1::FromTrainer Log(std::string text) {
    v1::FromTrainer message;
    message.mutable_log()->set_text(std::move(text));
    return message;
  }

  int fds_[2];
};

TEST_F(FramingTest, MessagesOfEverySizeArriveInOrder) {
  // Around the sizes of a chunk, and far more than a socket holds.
  const std::vector<size_t> sizes = {0, 1, 65'530, 65'531, 65'532, 65'536, 70'000, 5'000'000};
  std::thread writer([&] {
    for (size_t size : sizes) EXPECT_TRUE(WriteMessage(fds_[0], Log(std::string(size, 'x'))).ok());
    EXPECT_TRUE(WriteMessage(fds_[0], v1::FromTrainer()).ok());
  });
  MessageReader reader(fds_[1]);
  v1::FromTrainer message;
  for (size_t size : sizes) {
    ASSERT_TRUE(*reader.Read(&message));
    EXPECT_EQ(message.log().text().size(), size);
  }
  ASSERT_TRUE(*reader.Read(&message));
  EXPECT_EQ(message.message_case(), v1::FromTrainer::MESSAGE_NOT_SET);
  writer.join();
  CloseWriter();
  EXPECT_FALSE(*reader.Read(&message));
}

TEST_F(FramingTest, TornMessageIsDataLoss) {
  std::string frame("\x64\0\0\0half", 8);
  ASSERT_EQ(write(fds_[0], frame.data(), frame.size()), 8);
  CloseWriter();
  MessageReader reader(fds_[1]);
  v1::FromTrainer message;
  EXPECT_EQ(reader.Read(&message).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(reader.torn());
}

TEST_F(FramingTest, OversizedLengthIsRefusedBeforeItsBytesArrive) {
  ASSERT_EQ(write(fds_[0], "\xff\xff\xff\xff", 4), 4);
  MessageReader reader(fds_[1]);
  v1::FromTrainer message;
  const absl::Status status = reader.Read(&message).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("4294967295"), std::string::npos) << status;
}

TEST_F(FramingTest, OversizedMessageIsNotSent) {
  EXPECT_EQ(WriteMessage(fds_[0], Log(std::string(kMaxMessageBytes, 'x'))).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FramingTest, GarbageIsNamed) {
  ASSERT_EQ(write(fds_[0], "\x04\0\0\0\xff\xff\xff\xff", 8), 8);
  MessageReader reader(fds_[1]);
  v1::FromTrainer message;
  const absl::Status status = reader.Read(&message).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("legoai.v1.FromTrainer"), std::string::npos) << status;
}

TEST_F(FramingTest, WritingToAPeerThatIsGoneOrDeafFails) {
  const timeval timeout = {0, 50'000};
  setsockopt(fds_[0], SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  EXPECT_EQ(WriteMessage(fds_[0], Log(std::string(5'000'000, 'x'))).code(), absl::StatusCode::kDeadlineExceeded);
  shutdown(fds_[1], SHUT_RDWR);
  EXPECT_EQ(WriteMessage(fds_[0], Log("x")).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace legoai::launch
