// Uploads over TCP in ns-3. Reads one case per line from stdin,
//     control rate_bps rtt_s bytes loss buffer_packets first_seed seeds
// and prints the durations in seconds, from connect() to the receipt of the last byte.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <iostream>
#include <sstream>

using namespace ns3;

namespace
{
const uint32_t SEGMENT_BYTES = 1448;

struct Case
{
    std::string control;
    double rateBps;
    double rttS;
    uint64_t bytes;
    double loss;
    uint32_t bufferPackets;
};

double
Duration(const Case& wanted, uint32_t seed)
{
    RngSeedManager::SetRun(seed);
    NodeContainer nodes(2);
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(wanted.rateBps))));
    link.SetChannelAttribute("Delay", TimeValue(Seconds(wanted.rttS / 2)));
    link.SetQueue("ns3::DropTailQueue",
                  "MaxSize",
                  QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, wanted.bufferPackets)));
    NetDeviceContainer devices = link.Install(nodes);
    for (uint32_t end = 0; end < 2; ++end)
    {
        auto errors = CreateObject<RateErrorModel>();
        errors->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
        errors->SetRate(wanted.loss);
        devices.Get(end)->SetAttribute("ReceiveErrorModel", PointerValue(errors));
    }
    InternetStackHelper stack;
    stack.Install(nodes);
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
    TrafficControlHelper().Uninstall(devices); // the device's queue alone

    InetSocketAddress server(interfaces.GetAddress(1), 80);
    PacketSinkHelper sinkHelper("ns3::TcpSocketFactory", server);
    auto sink = DynamicCast<PacketSink>(sinkHelper.Install(nodes.Get(1)).Get(0));
    uint64_t received = 0;
    double end = -1;
    sink->TraceConnectWithoutContext("Rx",
                                     Callback<void, Ptr<const Packet>, const Address&>(
                                         [&](Ptr<const Packet> packet, const Address&) {
                                             received += packet->GetSize();
                                             if (received >= wanted.bytes)
                                             {
                                                 end = Simulator::Now().GetSeconds();
                                                 Simulator::Stop();
                                             }
                                         }));
    BulkSendHelper sender("ns3::TcpSocketFactory", server);
    sender.SetAttribute("MaxBytes", UintegerValue(wanted.bytes));
    sender.SetAttribute("SendSize", UintegerValue(SEGMENT_BYTES * 16));
    const double startS = 1;
    sender.Install(nodes.Get(0)).Start(Seconds(startS));
    Simulator::Stop(Seconds(1000));
    Simulator::Run();
    Simulator::Destroy();
    return end - startS;
}
} // namespace

int
main()
{
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(SEGMENT_BYTES));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(Seconds(1)));
    // Windows grow per acknowledgment here and per acknowledged segment in Linux.
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 25));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 25));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(MilliSeconds(1)));
    std::string line;
    while (std::getline(std::cin, line))
    {
        Case wanted;
        uint32_t first;
        uint32_t seeds;
        std::istringstream(line) >> wanted.control >> wanted.rateBps >> wanted.rttS >>
            wanted.bytes >> wanted.loss >> wanted.bufferPackets >> first >> seeds;
        std::string type = wanted.control == "cubic" ? "ns3::TcpCubic" : "ns3::TcpLinuxReno";
        Config::SetDefault("ns3::TcpL4Protocol::SocketType",
                           TypeIdValue(TypeId::LookupByName(type)));
        for (uint32_t seed = first; seed < first + seeds; ++seed)
        {
            std::cout << Duration(wanted, seed) << (seed + 1 < first + seeds ? " " : "");
        }
        std::cout << std::endl;
    }
    return 0;
}
