"""A client of AMQP 0-9-1 in bare frames over asyncio: as much of the protocol as RabbitMQ and this project need."""
