// SPDX-License-Identifier: Apache-2.0
// How processes meet, and who does not keep them from it: idle ones, slow ones, strangers, and
// processes that are not of this run.
#include "collective/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "collective/processes.h"
#include "collective/protocol.h"

namespace coda {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

const std::string kSecret = "what the launcher has made";

// All meet, and have rank 0's token.
void meet(const ProcessPlace& place, const Socket& listening) {
  const Met met = place.rank == 0 ? gather_others(place, listening, "CPU", "a token")
                                  : come_to_first(place, "CPU");
  require(met.token == "a token", "another token");
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Rank 0's meeting of two processes on a thread, and its port: rank 1 is the test's.
class Gathering {
 public:
  explicit Gathering(const std::string& secret = "", double patience = 20) {
    place_.world = 2;
    place_.address = "127.0.0.1";
    place_.secret = secret;
    place_.patience = patience;
    listening_ = listen_at("127.0.0.1", 0);
    port = port_of(listening_);
    testing::internal::CaptureStderr();
    thread_ = std::thread([this] {
      error_ = error_of([this] { met_ = gather_others(place_, listening_, "CPU", "a token"); });
    });
  }
  ~Gathering() {
    if (thread_.joinable()) finish();
  }
  // What rank 0 printed, and the error that it ended with.
  std::string finish() {
    thread_.join();
    return testing::internal::GetCapturedStderr() + error_;
  }
  // Rank 1 comes; it fails where it is not welcomed.
  void come() const {
    ProcessPlace place = place_;
    place.rank = 1;
    place.port = port;
    EXPECT_EQ(come_to_first(place, "CPU").token, "a token");
  }

  int port = 0;

 private:
  ProcessPlace place_;
  Socket listening_;
  Met met_;
  std::string error_;
  std::thread thread_;
};

TEST(Meeting, AllMeetWithASecretAndWithout) {
  for (const std::string& secret : {std::string(), kSecret, std::string(300, 's')}) {
    Started started{.world = 4};
    started.place.secret = secret;
    const Ended ended = in_processes(started, meet);
    EXPECT_EQ(ended.printed, "");
    EXPECT_EQ(ended.statuses, (std::vector{0, 0, 0, 0}));
  }
}

// More than rank 0 lets wait, and one that goes on and on.
TEST(Meeting, IdleAndSlowOnesHoldNobody) {
  Started started{.world = 3};
  started.place.secret = kSecret;
  std::vector<Socket> idle;
  std::atomic<bool> is_over = false;
  std::jthread slow;
  int ends[2];  // by which the others learn that the idle ones are there
  ASSERT_EQ(pipe(ends), 0);
  started.meanwhile = [&](const std::vector<pid_t>&, int port) {
    for (int i = 0; i < 500; ++i) idle.push_back(connect_until("127.0.0.1", port, soon()));
    slow = std::jthread([&] {
      for (char c = 'H'; !is_over; c = 0) {
        if (::send(idle.back().descriptor(), &c, 1, MSG_NOSIGNAL) < 0) return;
        std::this_thread::sleep_for(50ms);
      }
    });
    EXPECT_EQ(write(ends[1], "12", 2), 2);
  };
  const Ended ended =
      in_processes(started, [&](const ProcessPlace& place, const Socket& listening) {
        char rank = 0;
        if (place.rank > 0) require(read(ends[0], &rank, 1) == 1, "the test has ended");
        meet(place, listening);
      });
  is_over = true;
  for (const int end : ends) close(end);
  EXPECT_EQ(ended.statuses, (std::vector{0, 0, 0})) << ended.printed;
  EXPECT_LE(lines_of(ended.printed), 8);
}

// Who comes is asked at once, however many are silent: the longest silent ones make room.
TEST(Meeting, SilentOnesMakeRoomForOthers) {
  Gathering gathering(kSecret);
  std::vector<Spoken> idle(300);
  // All connect before one of them has been silent for long.
  for (Spoken& one : idle) one.socket = connect_until("127.0.0.1", gathering.port, soon());
  for (Spoken& one : idle) ASSERT_TRUE(receive_until(one.socket, one.inbox, soon()));
  gathering.come();
  EXPECT_THAT(gathering.finish(), HasSubstr("it was silent while many others connected"));
}

TEST(Meeting, NobodyHoldsRank0BehindItsDeadline) {
  Gathering gathering(kSecret, 1);
  std::vector<Socket> idle;
  for (int i = 0; i < 20; ++i) idle.push_back(connect_until("127.0.0.1", gathering.port, soon()));
  EXPECT_EQ(::send(idle[0].descriptor(), "H\x10", 2, MSG_NOSIGNAL), 2);
  EXPECT_THAT(gathering.finish(),
              AllOf(HasSubstr("after 1 seconds rank 1 of 2 has not joined rank 0 at 127.0.0.1"),
                    HasSubstr("which only this machine reaches")));
}

TEST(Meeting, StrangersAreTurnedAwayAndNamed) {
  Gathering gathering(kSecret);
  const auto answer = [&](const std::string& bytes) {
    Spoken stranger;
    stranger.socket = connect_until("127.0.0.1", gathering.port, soon());
    receive_until(stranger.socket, stranger.inbox, soon());
    ::send(stranger.socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    const auto message = receive_until(stranger.socket, stranger.inbox, soon());
    return message ? message->kind + (": " + message->text) : "nothing";
  };
  const std::string too_long = "N: its message is not one of coda";
  EXPECT_EQ(answer("GET / HTTP/1.1\r\n\r\n"), too_long);             // a length of some GB
  EXPECT_EQ(answer(std::string("H\xff\xff\xff\xff", 5)), too_long);  // and of 4 GiB
  EXPECT_EQ(answer(std::string("H\x01\x10\x00\x00", 5)), too_long);  // longer than any hello
  EXPECT_EQ(answer(std::string("H\x00\x00\x01\x00", 5)), too_long);
  EXPECT_EQ(answer(std::string("H\x00\x00\x00\x01", 5)), too_long);
  const std::string other = "N: its message is not one of this version of coda";
  EXPECT_EQ(answer(std::string("H\x05\x00\x00\x00hello", 10)), other);
  EXPECT_EQ(answer(std::string("W\x05\x00\x00\x00hello", 10)), other);
  EXPECT_EQ(answer(std::string("H\x0a\0\0\0"
                               "coda 2\na\nb",
                               15)),
            "N: it does not know CODA_JOIN_SECRET");
  gathering.come();
  const std::string said = gathering.finish();
  EXPECT_EQ(lines_of(said), 8) << said;
  EXPECT_THAT(said, HasSubstr("coda: rejected 127.0.0.1: "));
}

TEST(Meeting, OnlyWhoKnowsTheSecretIsAdmitted) {
  Gathering gathering(kSecret);
  const auto answer = [&](char letter, const Claim& c) {
    const Spoken spoken = claim(gathering.port, letter, c);
    EXPECT_TRUE(spoken.answer);
    return spoken.answer ? spoken.answer->kind + (": " + spoken.answer->text) : "";
  };
  EXPECT_THAT(answer('H', {.secret = "a guess of a secret"}),
              HasSubstr("N: it does not know CODA_JOIN_SECRET"));
  EXPECT_THAT(answer('H', {}), HasSubstr("N: rank 0 has a CODA_JOIN_SECRET, and it has none"));
  // Not what a hello says is believed, but who says it: a connection for bytes has its own proof.
  EXPECT_THAT(answer('D', {.secret = kSecret}), HasSubstr("N: it is rank 1 of 2 (somewhere), which "
                                                          "has not joined before"));
  gathering.come();
  EXPECT_EQ(lines_of(gathering.finish()), 3);
}

TEST(Meeting, ASecretThatRank0HasNotIsSaid) {
  Gathering gathering("");
  const Spoken spoken = claim(gathering.port, 'H', {.secret = kSecret});
  ASSERT_TRUE(spoken.answer);
  EXPECT_THAT(spoken.answer->text, HasSubstr("it has a CODA_JOIN_SECRET, and rank 0 has none"));
  gathering.come();
}

// What one process said cannot be said again by who has heard it.
TEST(Meeting, AProofHoldsForOneConnection) {
  Gathering gathering(kSecret);
  Spoken first;
  first.socket = connect_until("127.0.0.1", gathering.port, soon());
  const auto challenge = receive_until(first.socket, first.inbox, soon());
  ASSERT_TRUE(challenge);
  const std::string heard = challenge->text.substr(challenge->text.find('\n') + 1);
  const auto answer = claim(gathering.port, 'H', {.secret = kSecret, .heard = heard}).answer;
  ASSERT_TRUE(answer);
  EXPECT_THAT(answer->text, HasSubstr("it does not know CODA_JOIN_SECRET"));
  gathering.come();
}

TEST(Meeting, ASecondRank1AndRanksOfOtherRunsAreTurnedAway) {
  Gathering gathering(kSecret);
  const Spoken first = claim(gathering.port, 'H', {.secret = kSecret});
  ASSERT_TRUE(first.answer);
  EXPECT_EQ(first.answer->kind, 'A');
  const auto reason = [&](char letter, const Claim& c) {
    const auto answer = claim(gathering.port, letter, c).answer;
    return answer && answer->kind == 'N' ? answer->text : "it is admitted";
  };
  EXPECT_THAT(
      reason('H', {.secret = kSecret}),
      HasSubstr("it is rank 1 of 2 (somewhere), and a process with this rank has already joined"));
  EXPECT_THAT(reason('H', {.rank = 7, .secret = kSecret}),
              HasSubstr("it is rank 7 of 2 (somewhere), which is not a valid rank besides 0"));
  EXPECT_THAT(reason('H', {.rank = 0, .secret = kSecret}), HasSubstr("not a valid rank"));
  EXPECT_THAT(reason('H', {.world = 3, .secret = kSecret}),
              HasSubstr("it is rank 1 of 3 (somewhere), and rank 0 is one of 2 processes"));
  // Another's connection for many bytes is not this rank's.
  EXPECT_THAT(reason('D', {.secret = kSecret, .nonce = "another's"}),
              HasSubstr("which has not joined before"));
  Spoken data = claim(gathering.port, 'D', {.secret = kSecret});
  ASSERT_TRUE(data.answer);
  EXPECT_EQ(data.answer->kind, 'A');
  const std::string said = gathering.finish();
  EXPECT_EQ(lines_of(said), 5) << said;
  EXPECT_THAT(said, AllOf(HasSubstr("coda: rejected 127.0.0.1: it is rank 1 of 2 (somewhere)"),
                          testing::Not(HasSubstr("secret"))));
}

TEST(Meeting, ARankThatEndsBeforeAllAreThereMayComeAgain) {
  Gathering gathering(kSecret);
  claim(gathering.port, 'H', {.secret = kSecret});  // and its connection is closed
  std::this_thread::sleep_for(100ms);
  gathering.come();
  EXPECT_EQ(gathering.finish(), "no error");
}

TEST(Meeting, OtherVersionsAndKindsEndAll) {
  for (const bool is_version : {true, false}) {
    Gathering gathering(kSecret);
    Claim other{.secret = kSecret};
    (is_version ? other.version : other.kind) = "another";
    Spoken first = claim(gathering.port, 'H', other);
    const Spoken data = claim(gathering.port, 'D', other);
    EXPECT_THAT(gathering.finish(),
                HasSubstr(is_version ? "of coda and rank 1 of 2 (somewhere) has another"
                                     : "rank 0 has CPU and rank 1 of 2 (somewhere) has another"));
    const auto end = receive_until(first.socket, first.inbox, soon());
    ASSERT_TRUE(end);
    EXPECT_EQ(end->kind, 'Q');  // and no token
  }
}

// Somebody else has rank 0's port, and admits everybody.
TEST(Meeting, ARank0ThatDoesNotKnowTheSecretIsNotBelieved) {
  const Socket listening = listen_at("127.0.0.1", 0);
  std::thread impostor([&] {
    std::vector<Socket> guests;
    for (const char letter : {'H', 'D'}) {
      std::optional<Socket> guest;
      while (!guest) guest = accept_now(listening);
      Inbox inbox;
      send_message(*guest, {'C', "coda 2\na number"});
      const auto hello = receive_until(*guest, inbox, soon());
      EXPECT_TRUE(hello && hello->kind == letter);
      EXPECT_EQ(hello->text.find(kSecret), std::string::npos);
      send_message(*guest, {'A', ""});
      guests.push_back(std::move(*guest));
    }
    send_message(guests[0], {'W', std::string(64, '0') + "\nits token"});
    char one = 0;
    ::recv(guests[0].descriptor(), &one, 1, 0);
  });
  ProcessPlace place;
  place.rank = 1;
  place.world = 2;
  place.address = "127.0.0.1";
  place.port = port_of(listening);
  place.secret = kSecret;
  EXPECT_THAT(error_of([&] { come_to_first(place, "CPU"); }),
              HasSubstr("does not know CODA_JOIN_SECRET: it is not this run's rank 0"));
  impostor.join();
}

TEST(Meeting, AnotherProgramAtRank0sPortIsSaid) {
  const Socket mute = listen_at("127.0.0.1", 0);
  ProcessPlace place;
  place.rank = 1;
  place.world = 2;
  place.address = "127.0.0.1";
  place.port = port_of(mute);
  place.patience = 1;
  EXPECT_THAT(error_of([&] { come_to_first(place, "CPU"); }),
              AllOf(HasSubstr("does not answer"), HasSubstr("another program has that port")));
}

// A program that ends the process before it has sent a challenge, as rank 0 never does.
TEST(Meeting, AnotherProgramCannotEndAProcessWithoutALine) {
  const Socket listening = listen_at("127.0.0.1", 0);
  std::thread impostor([&] {
    std::optional<Socket> guest;
    while (!guest) guest = accept_now(listening);
    send_message(*guest, {'Q', ""});
    char one = 0;
    ::recv(guest->descriptor(), &one, 1, 0);
  });
  ProcessPlace place;
  place.rank = 1;
  place.world = 2;
  place.address = "127.0.0.1";
  place.port = port_of(listening);
  EXPECT_THAT(error_of([&] { come_to_first(place, "CPU"); }), HasSubstr("is not rank 0"));
  impostor.join();
}

TEST(Meeting, Rank0ListensAtItsAddressAlone) {
  ProcessPlace place;
  place.world = 2;
  place.secret = kSecret;
  for (const char* address : {"127.0.0.1", "127.0.0.2"}) {
    place.address = address;
    const Socket listening = listen_for_others(place);
    EXPECT_EQ(own_address(listening), address);
    const char* const another = place.address == "127.0.0.1" ? "127.0.0.2" : "127.0.0.1";
    EXPECT_THROW(connect_until(another, port_of(listening), in(200ms)), Error);
  }
  place.address = "192.0.2.1";  // of documentation: no machine has it
  EXPECT_THAT(error_of([&] { listen_for_others(place); }),
              HasSubstr("MASTER_ADDR must name an address of rank 0's machine"));
}

TEST(Meeting, WithoutASecretOnlyThisMachineIsListenedTo) {
  ProcessPlace place;
  place.world = 2;
  place.address = "127.0.0.1";
  testing::internal::CaptureStderr();
  listen_for_others(place);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("CODA_JOIN_SECRET is not set, so any program that reaches 127.0.0.1"),
                    HasSubstr("may join this run")));
  place.address = "0.0.0.0";
  EXPECT_THAT(error_of([&] { listen_for_others(place); }),
              AllOf(HasSubstr("rank 0 would listen at 0.0.0.0"), HasSubstr("CODA_JOIN_OPEN=1")));
  testing::internal::CaptureStderr();
  place.is_open = true;
  EXPECT_TRUE(listen_for_others(place).is_open());
  EXPECT_NE(testing::internal::GetCapturedStderr(), "");
  place.is_open = false;
  place.secret = kSecret;
  testing::internal::CaptureStderr();
  EXPECT_TRUE(listen_for_others(place).is_open());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Meeting, APortThatIsTakenIsSaid) {
  const Socket first = listen_at("127.0.0.1", 0);
  EXPECT_THAT(
      error_of([&] { listen_at("127.0.0.1", port_of(first)); }),
      AllOf(HasSubstr("rank 0 cannot listen at 127.0.0.1, port"), HasSubstr("set MASTER_PORT")));
}

}  // namespace
}  // namespace coda
