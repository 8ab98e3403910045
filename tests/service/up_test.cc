// `lego up` with the real programs: what it starts, leaves alone, starts anew and ends.
#include <arpa/inet.h>
#include <google/protobuf/text_format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/legoai/v1/hardware.pb.h"
#include "server/cli/testing/lego_process.h"
#include "server/http/testing/test_client.h"
#include "tests/service/service_processes.h"

namespace legoai::service {
namespace {

using cli::testing::Json;
using cli::testing::Process;
using cli::testing::Result;

class UpTest : public cli::testing::LegoTest {
 protected:
  void SetUp() override {
    LegoTest::SetUp();
    // The first test measures this machine, for all, and takes it for quiet: else each `lego up` might measure anew.
    const std::string cache = ::testing::TempDir() + "/cache";
    setenv("XDG_CACHE_HOME", cache.c_str(), 1);
    if (!std::filesystem::exists(cache + kFigures)) {
      ASSERT_EQ(Run({"hardware", "--measure"}).code, 0);
      WriteFigures(cache, {});
    }
    unsetenv("XDG_DATA_HOME");
    std::filesystem::create_directories(folder_ / "page");
    cli::testing::Write(folder_ / "page/index.html", "<title>the page</title>");
    listen_ = "127.0.0.1:" + std::to_string(FreePort());
    http_port_ = FreePort();
  }
  void TearDown() override {
    Run({"up", "--stop"});
    unsetenv("XDG_CACHE_HOME");
    LegoTest::TearDown();
  }

  // The figures that are kept there, measured while others took this share of the processors; without it nothing is known of
  // others.
  static void WriteFigures(const std::string& cache, std::optional<double> others) {
    v1::Device device;
    std::stringstream text;
    text << std::ifstream(cache + kFigures).rdbuf();
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text.str(), &device)) << text.str();
    device.clear_measured_while_busy();
    if (others) device.set_measured_while_busy(*others);
    std::string figures;
    ASSERT_TRUE(google::protobuf::TextFormat::PrintToString(device, &figures));
    cli::testing::Write(cache + kFigures, figures);
  }
  std::vector<std::string> Words(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"up",    "--listen",   listen_,    "--http", "127.0.0.1:" + std::to_string(http_port_),
                                      "--web", Path("page"), "--device", device_,  "--slots",
                                      "2",     "-o",         "json"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Json Up(const std::vector<std::string>& more = {}) const {
    const Result result = Run(Words(more));
    EXPECT_EQ(result.code, 0) << result.err;
    const Json json = Json::parse(result.out, nullptr, false);
    EXPECT_TRUE(json.is_object() && json["running"] == true) << result.out;
    return json;
  }
  std::multiset<std::string> Programs() const {
    std::multiset<std::string> names;
    for (const Process& process : Processes()) names.insert(process.program);
    names.erase("lego-sim");  // what the server plans with
    return names;
  }

  // Without what the agent checks the machine with when it begins.
  std::multiset<std::string> Service() const {
    std::multiset<std::string> names = Programs();
    names.erase("legoai-trainer");
    return names;
  }
  // A process that is being started is one more of its parent's for a moment.
  void AwaitService() const {
    cli::testing::WaitUntil("one server and one agent", [this] { return Service() == both_; });
  }

  static constexpr char kFigures[] = "/legoai/this-machine.txtpb";
  const std::multiset<std::string> both_ = {"legoai-agent", "legoai-server"};
  std::string listen_, device_ = "cpu";
  int http_port_ = 0;
};

TEST_F(UpTest, StartsShowsAndStops) {
  Result result = Run({"up", "--status"});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.out, "nothing runs; the data is in " + Path(".local/share/legoai") + "\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / ".local"));  // to look makes nothing

  const Json up = Up();
  AwaitService();
  EXPECT_EQ(up["page"], "http://127.0.0.1:" + std::to_string(http_port_) + "/");
  EXPECT_EQ(up["address"], listen_);
  EXPECT_EQ(up["data"], Path(".local/share/legoai"));
  EXPECT_EQ(up["runs"], Path(".local/share/legoai/runs"));
  EXPECT_EQ(up["data_roots"], std::filesystem::current_path().string());
  server::http_test::Client page(http_port_);
  page.Send(server::http_test::Request("GET", "/", "", "Connection: close\r\n"));
  EXPECT_NE(page.ReadAll().find("<title>the page</title>"), std::string::npos) << page.received();
  result = Run({"workers", "--server", listen_, "-o", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json workers = Json::parse(result.out);
  ASSERT_EQ(workers.size(), 1);
  EXPECT_EQ(workers[0]["connected"], true);
  EXPECT_EQ(workers[0]["slots"], 2);

  result = Run({"up", "--status"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_NE(result.out.find(up["page"].get<std::string>()), std::string::npos) << result.out;
  result = Run({"up", "--stop"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "stopped; the data is in " + Path(".local/share/legoai") + "\n");
  EXPECT_EQ(Programs(), std::multiset<std::string>());
  EXPECT_EQ(Run({"up", "--status"}).code, 1);
  EXPECT_EQ(Run({"up", "--stop"}).code, 0);
}

TEST_F(UpTest, MeasuresFirstWhereThatWasNotDone) {
  setenv("XDG_CACHE_HOME", Path("cache").c_str(), 1);
  const Result result = Run(Words());
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("measuring this machine"), std::string::npos) << result.err;
  EXPECT_TRUE(std::filesystem::exists(Path("cache") + kFigures));
}

// Whether this machine is quiet now is not the test's to say: one of the two happens, and it is said which.
TEST_F(UpTest, DoesNotGoByFiguresOfABusyMachineWithoutAWord) {
  const std::string shared = ::testing::TempDir() + "/cache", cache = Path("cache");
  std::filesystem::create_directories(cache + "/legoai");
  std::filesystem::copy_file(shared + kFigures, cache + kFigures);
  WriteFigures(cache, 0.43);
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  const Result result = Run(Words());
  EXPECT_EQ(result.code, 0) << result.err;
  const bool warned = result.err.find("others took 43.0 % of the processors") != std::string::npos;
  const bool measured = result.err.find("measuring this machine") != std::string::npos;
  EXPECT_NE(warned, measured) << result.err;
}

TEST_F(UpTest, LeavesAloneWhatRunsAndStartsAnewWhatDiffers) {
  const Json first = Up();
  Json again = Up();
  EXPECT_EQ(again["server"], first["server"]);
  EXPECT_EQ(again["agent"], first["agent"]);
  again = Up({"--name", "another"});
  EXPECT_EQ(again["server"], first["server"]);
  EXPECT_NE(again["agent"], first["agent"]);
  AwaitService();
  // One of the two is gone: it alone is started.
  const pid_t server = first["server"]["pid"];
  ASSERT_EQ(kill(server, SIGKILL), 0);
  cli::testing::WaitUntil("the end of the server", [&] { return Programs() == std::multiset<std::string>{"legoai-agent"}; });
  EXPECT_EQ(Run({"up", "--status"}).code, 1);
  const Json after = Up({"--name", "another"});
  EXPECT_EQ(after["agent"], again["agent"]);
  EXPECT_NE(after["server"], first["server"]);
  AwaitService();
}

TEST_F(UpTest, OfTwoAtOnceOneStartsAndTheOtherFindsIt) {
  const pid_t one = Start(Words()), other = Start(Words());
  const Result first = Wait(one), second = Wait(other);
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(first.out, second.out);
  AwaitService();
}

TEST_F(UpTest, SaysWhyAProgramEnded) {
  const int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(http_port_));
  ASSERT_EQ(bind(taken, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(taken, 1), 0);
  ExpectError(Words(), 1, {"the server ended: ", std::to_string(http_port_), "in use", "server.log"});
  EXPECT_EQ(Programs(), std::multiset<std::string>());
  close(taken);
  device_ = "abacus";
  ExpectError(Words(), 1, {"the agent ended: ", "abacus", "agent.log"});
  EXPECT_EQ(Programs(), std::multiset<std::string>{"legoai-server"});
  device_ = "cpu";
  Up();  // goes on from there
}

TEST_F(UpTest, WrongCallsStartNothing) {
  ExpectError({"up", "--stop", "--status"}, 2, {"--stop", "exclude each other"});
  ExpectError({"up", "--listen", "nowhere"}, 1, {"the server ended: --listen = nowhere: must be ADDRESS:PORT"});
  ExpectError({"up", "--http", "127.0.0.1:0"}, 2, {"--http", "127.0.0.1:0"});
  ExpectError({"up", "--slots", "0"}, 2, {"--slots"});
  ExpectError({"up", "--data", "/proc/none"}, 2, {"--data", "/proc/none", "name a folder of yours"});
  // Other machines are let in by name only.
  ExpectError({"up", "--data", Path("open"), "--listen", "0.0.0.0:" + std::to_string(FreePort())}, 1,
              {"can be reached", "--insecure"});
  setenv("HOME", "nowhere", 1);
  ExpectError({"up", "--status"}, 2, {"--data", "HOME", "XDG_DATA_HOME"});
  setenv("XDG_DATA_HOME", Path("share").c_str(), 1);
  EXPECT_EQ(Run({"up", "--status"}).out, "nothing runs; the data is in " + Path("share/legoai") + "\n");
  unsetenv("XDG_DATA_HOME");
  setenv("HOME", folder_.c_str(), 1);
  EXPECT_EQ(Programs(), std::multiset<std::string>());
}

TEST_F(UpTest, StaysInTheForegroundUntilItIsAskedToEnd) {
  const pid_t pid = Start(Words({"--foreground"}));
  cli::testing::WaitUntil("both", [&] { return !cli::testing::ReadAll(OutputOf(pid, "stdout")).empty(); });
  EXPECT_EQ(Run({"up", "--status"}).code, 0);
  ASSERT_EQ(kill(pid, SIGTERM), 0);
  const Result result = Wait(pid);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Programs(), std::multiset<std::string>());
}

}  // namespace
}  // namespace legoai::service
